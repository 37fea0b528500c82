// The file mappings of this process that are told of. The truth is kept here, in the process's own
// memory, where no other program can write and where fork copies it; the board has a copy for the
// tool to read.
#pragma once

#include "process_guard/shared_table_layout.h"

namespace evenkeel::preload {

struct Range {
  std::uint64_t begin = 0, end = 0;
};

struct Entry {
  std::uint64_t begin = 0, end = 0;  // end 0: free
  std::uint64_t offset = 0;          // of `begin` in the file
  std::uint64_t inode = 0;
  std::uint64_t device = 0;  // as the kernel's books number it, see books.h; 0: not seen yet
  std::uint32_t file = 0;    // slot on the board
  std::uint32_t flags = 0;   // shared_table::MappingFlags
};

// Only `touches` may be called without the lock that goes with the table.
class Table {
 public:
  // Whether an entry may lie in the range. While others change the table it may say yes where there
  // is none, but never no where there is one.
  bool touches(Range range) const;

  // Where to write what is there; null: nowhere. Written anew at once.
  void publish_on(shared_table::Process* process, shared_table::Word* lost);

  // What was there before goes: the kernel gives an address once only.
  void insert(const Entry& entry);
  void remove(Range range);
  void remove_slot(std::uint32_t slot);
  void clear();
  void add_flags(Range range, std::uint32_t flags);
  void add_flags_to_slot(std::uint32_t slot, std::uint32_t flags);
  void set_device(std::uint32_t slot, std::uint64_t device);

  // Before a call that may unmap the range: no order reaches it any more. One of the three after
  // it, with the number that this returned. 0: there was nothing.
  std::uint32_t take(Range range);
  void give_back(std::uint32_t taken);
  void drop(std::uint32_t taken);
  // As mremap did: what was taken begins at `to` instead of `from.begin`, and the whole is as long
  // as `to` is. With `stays`, the old place remains mapped, too.
  void move(std::uint32_t taken, Range from, Range to, bool stays);

  // The entry that an order means; false when it is not there, or not as it was.
  bool find(std::uint32_t slot, std::uint32_t generation, Entry& out) const;
  // The one that holds the address.
  bool at(std::uint64_t address, Entry& out) const;
  bool empty() const { return used_.load(std::memory_order_relaxed) == 0; }

  // In the child of a fork. Where another thread of the parent was in the middle of a change
  // nothing is known for certain, and all is forgotten; so is what others had taken.
  void after_fork();

 private:
  struct Slot {
    shared_table::Number begin{0}, end{0};  // of `entry`, for `touches`
    Entry entry;
    std::uint32_t generation = 0;
    std::uint32_t taken = 0;
  };
  class Change;

  bool filled(std::uint32_t i) const { return slots_[i].entry.end != 0; }
  void put(std::uint32_t i, const Entry& entry);
  bool add(const Entry& entry, std::uint32_t taken);
  void split_at(std::uint64_t address);
  void empty_slot(std::uint32_t i);
  void publish(std::uint32_t i);
  void unpublish(std::uint32_t i);
  std::uint32_t used() const { return used_.load(std::memory_order_relaxed); }

  Slot slots_[shared_table::kMappings];
  shared_table::Word used_{0};     // slots from here on are free
  shared_table::Word version_{0};  // odd while the table is being changed
  std::uint32_t last_taken_ = 0;
  shared_table::Process* process_ = nullptr;
  shared_table::Word* lost_ = nullptr;
};

}  // namespace evenkeel::preload
