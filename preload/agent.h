// The state of the library in this process, and the functions that the hooks call. The only
// instance is `agent`. It needs no construction and no destruction, because hooks are called before
// and after everything else.
#pragma once

#include "preload/lock.h"
#include "preload/mapping_table.h"
#include "preload/table_link.h"

namespace evenkeel::preload {

// A successful call of mmap.
struct NewMapping {
  Range range;
  int protection = 0, flags = 0, fd = -1;
  std::uint64_t offset = 0;
};

class Agent {
 public:
  // Call it after mmap. Removes mappings that were registered there, and registers the new one if
  // it is to be guarded.
  void mapped(const NewMapping& mapping);
  // Call it when something else is mapped in the range, or may soon be.
  void forget(Range range);
  // Adds flags (shared_table::MappingFlags) to mappings in the range. If none is registered there,
  // no lock is taken.
  void note(Range range, std::uint32_t flags);

  // Call it before a call that may unmap the range. Takes its mappings out of the table and returns
  // a number for them, or 0 if there are none. Call settle() or moved() with it after the call.
  std::uint32_t take(Range range);
  void settle(std::uint32_t taken, bool gone);
  void moved(std::uint32_t taken, Range from, Range to, bool stays);
  // For mremap of length 0: the same part of the file is mapped a second time.
  void doubled(std::uint64_t from, Range to);

  // Call it in a child of fork(). Registers the child with the mappings of its parent, and starts
  // its thread.
  void forked();

  // Asks the tool to close the descriptors of files that are no longer mapped, and waits until it
  // has. Returns false if the tool does not answer.
  bool ask_tool_to_close_files();

  // Whether a thread of this library runs in this process, and is the only one besides the caller.
  // If /proc does not tell how many there are, it counts as the only one.
  bool has_only_other_thread() const;

  // Stops guarding this process for good. Called before the program installs a seccomp filter,
  // which may kill it for any system call of this library, or enters a namespace, for which it may
  // have no other threads. From then on the library makes no system call of its own. The table
  // counts programs that map large files later, so that the tool can report them.
  void leave();

  // For the thread that carries out commands. It calls thread_begins() first and thread_ends()
  // last. leave() waits until then.
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
    kNoLonger,  // there is none, and none will be started
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
  // Valid while thread_ is kRunning: the entry with its commands, the process that started it, its
  // ID, and whether it has ended.
  std::atomic<shared_table::Process*> served_{nullptr};
  std::atomic<long> thread_process_{0};
  std::atomic<std::uint32_t> thread_id_{0}, thread_ended_{0};
  std::atomic<shared_table::SharedTable*> shared_{nullptr};
  Registration registration_;
  bool refused_ = false;  // the table had no room for this process
  std::atomic<bool> leaving_{false}, sandboxed_{false}, sandbox_counted_{false};
  // A word in a page that the kernel clears in a child, whichever call created it. A child of vfork
  // shares all this memory, so there it is not cleared. Null before the first registered mapping,
  // and before Linux 4.14: then only fork() is noticed.
  std::atomic<shared_table::Word*> own_{nullptr};
  char path_[4096] = {};  // guarded by lock_; not on the stack, which may be small
};

extern Agent agent;

// The page size of the machine.
std::uint64_t page_size();

}  // namespace evenkeel::preload
