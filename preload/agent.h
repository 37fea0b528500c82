// The state of the library in this process, and what the hooks call. There is one, `agent`. It
// needs no construction and no destruction: hooks are called before and after everything else.
#pragma once

#include "preload/lock.h"
#include "preload/mapping_table.h"
#include "preload/table_link.h"

namespace evenkeel::preload {

// A call of mmap that went well.
struct NewMapping {
  Range range;
  int protection = 0, flags = 0, fd = -1;
  std::uint64_t offset = 0;
};

class Agent {
 public:
  // After mmap: what was registered there is gone, and the new mapping may be registered.
  void mapped(const NewMapping& mapping);
  // Something else is mapped in the range, or may soon be.
  void forget(Range range);
  // The flags are shared_table::MappingFlags. Where nothing of the range is registered, no lock is
  // taken.
  void note(Range range, std::uint32_t flags);

  // Before a call that may unmap the range: its mappings leave the table. 0: there were none.
  std::uint32_t take(Range range);
  void settle(std::uint32_t taken, bool gone);
  void moved(std::uint32_t taken, Range from, Range to, bool stays);
  // mremap of length 0: the same part of the file is mapped a second time.
  void doubled(std::uint64_t from, Range to);

  // In the child of fork(): registers it with the mappings it has from its parent, and starts its
  // thread.
  void forked();

  // Asks the tool to close the descriptors of files that are no longer mapped, and waits until it
  // has. False if the tool does not answer.
  bool ask_tool_to_close_files();

  // Ends the guarding of this process for good, before the program installs a seccomp filter that
  // may kill it for any call of this library. From then on the library makes no system call of its
  // own. The table counts programs that map large files later, so that the tool can report them.
  void leave();

  // For the thread that carries out commands. thread_begins() is the first thing it does, and
  // thread_ends() the last: until then leave() waits.
  void thread_begins();
  void thread_ends();
  bool stopping() const { return leaving_.load(std::memory_order_acquire); }
  Lock& lock() { return lock_; }
  MappingTable& table() { return table_; }
  shared_table::SharedTable& shared() { return *shared_.load(std::memory_order_acquire); }

 private:
  enum Phase : std::uint32_t { kFresh, kAttached, kInert };
  enum ThreadState : std::uint32_t {
    kNoThread,
    kStarting,
    kRunning,   // pthread_create was successful; the thread itself may not have begun
    kNoLonger,  // there is none, and none is started any more
  };
  void stop_thread();
  bool thread_has_ended();
  void count_sandboxed();

  bool may_be_registered(const NewMapping& mapping);
  void register_mapping(const NewMapping& mapping, const FileFacts& facts);
  bool publish(const NewMapping& mapping, const FileFacts& facts, std::uint32_t& advice);
  bool attached();
  bool has_registration();
  void start_thread();
  void notice_fork();
  void renew();
  bool touches(Range range);
  void changed();

  Lock lock_;
  MappingTable table_;
  std::atomic<std::uint32_t> phase_{kFresh};
  std::atomic<std::uint32_t> thread_{kNoThread};
  // While thread_ is kRunning: the entry with its commands, the process that started it, its
  // number, and whether it has ended.
  std::atomic<shared_table::Process*> served_{nullptr};
  std::atomic<long> thread_process_{0};
  std::atomic<std::uint32_t> thread_id_{0}, thread_ended_{0};
  std::atomic<shared_table::SharedTable*> shared_{nullptr};
  Registration registration_;
  bool refused_ = false;  // there was no room for this process
  std::atomic<bool> leaving_{false}, sandboxed_{false}, sandbox_counted_{false};
  // A word in a page that the kernel empties in the child of a fork, however it was made, but not
  // in that of vfork, which shares all this memory. Null before the first registered mapping, and
  // where the kernel cannot (before Linux 4.14): then fork() alone is noticed.
  std::atomic<shared_table::Word*> own_{nullptr};
  char path_[4096] = {};  // under the lock: threads of programs may have small stacks
};

extern Agent agent;

// Of the machine; what the kernel rounds lengths to.
std::uint64_t page_size();

}  // namespace evenkeel::preload
