// What the library knows in this process, and what the hooks ask of it. There is one, `agent`; it
// needs no construction and no destruction, for hooks are called before and after everything.
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
  // After mmap: what lay there before is gone, and what is there now may be worth telling of.
  void mapped(const NewMapping& mapping);
  // The range is, or may soon be, another's.
  void forget(Range range);
  // The flags are the board's. Where nothing of the range is in the table no lock is taken.
  void note(Range range, std::uint32_t flags);

  // The range may change hands in the call that follows: it leaves the table. 0: it was not there.
  std::uint32_t take(Range range);
  void settle(std::uint32_t taken, bool gone);
  void moved(std::uint32_t taken, Range from, Range to, bool stays);
  // mremap of no bytes: the same file, from the same offset, once more.
  void doubled(std::uint64_t from, Range to);

  // In the child of fork(): a slot of its own, the parent's mappings in it, and a thread.
  void forked();

  // For the thread that takes orders.
  Lock& lock() { return lock_; }
  Table& table() { return table_; }
  shared_table::SharedTable& board() { return *board_.load(std::memory_order_acquire); }
  shared_table::Process& process() { return *process_; }

 private:
  enum Phase : std::uint32_t { kFresh, kAttached, kInert };
  enum ThreadState : std::uint32_t { kNoThread, kStarting, kRunning };

  bool may_be_told(const NewMapping& mapping);
  void tell(const NewMapping& mapping, const FileFacts& facts);
  bool attached();
  bool has_process();
  void start_thread();
  void notice_fork();
  void renew();
  bool touches(Range range);
  void changed();

  Lock lock_;
  Table table_;
  std::atomic<std::uint32_t> phase_{kFresh};
  std::atomic<std::uint32_t> thread_{kNoThread};
  std::atomic<shared_table::SharedTable*> board_{nullptr};
  shared_table::Process* process_ = nullptr;
  // A word in a page that the kernel empties in the child of a fork, however it was made, but not
  // in that of vfork, which shares all this memory. Null before the first mapping that is told of,
  // and where the kernel cannot (before Linux 4.14): then fork() alone is noticed.
  std::atomic<shared_table::Word*> own_{nullptr};
  char path_[4096] = {};  // under the lock: threads of programs may have small stacks
};

extern Agent agent;

// Of the machine; what the kernel rounds lengths to.
std::uint64_t page_size();

}  // namespace evenkeel::preload
