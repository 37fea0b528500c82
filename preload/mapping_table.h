// The registered file mappings of this process. The process keeps them in its own memory, where no
// other program can write and where fork copies them; the shared table has a copy for the tool.
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
  std::uint64_t device = 0;  // as /proc/PID/maps numbers it, see proc_maps.h; 0: not seen yet
  std::uint32_t file = 0, file_generation = 0;  // entry in the shared table
  std::uint32_t flags = 0;                      // shared_table::MappingFlags
  std::uint32_t descriptor = 0;                 // through which the program mapped it
};

// Only `touches` may be called without the lock that goes with the table.
class MappingTable {
 public:
  // Whether an entry may lie in the range. While others change the table it may say yes where there
  // is none, but never no where there is one.
  bool touches(Range range) const;

  // Where the copy for the tool goes: the process's entry and its array. Everything is written
  // there at once. Without a process there is no copy.
  struct Copy {
    shared_table::Process* process = nullptr;
    shared_table::Mapping* mappings = nullptr;
    shared_table::Word* lost = nullptr;  // counts mappings for which there was no room
  };
  void publish_on(const Copy& copy);

  // Replaces entries in its range: the kernel maps an address once.
  void insert(const Entry& entry);
  void remove(Range range);
  void remove_slot(std::uint32_t slot);
  void clear();
  void add_flags(Range range, std::uint32_t flags);
  void add_flags_to_slot(std::uint32_t slot, std::uint32_t flags);
  void set_device(std::uint32_t slot, std::uint64_t device);

  // Before a call that may unmap the range: no command reaches it any more. Call one of the three
  // below after it, with the number that this returned. 0: there was nothing.
  std::uint32_t take(Range range);
  void give_back(std::uint32_t taken);
  void drop(std::uint32_t taken);
  // As mremap did: what was taken begins at `to` instead of `from.begin`, and the whole is as long
  // as `to` is. With `stays`, the old place remains mapped, too.
  void move(std::uint32_t taken, Range from, Range to, bool stays);

  // The entry that a command means; false when it is not there, or not as it was.
  bool find(std::uint32_t slot, std::uint32_t generation, Entry& out) const;
  // The one that contains the address.
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
  // From the lowest to the highest address of so many slots, so that a search can pass them by.
  // A program with thousands of mappings calls munmap as often as any other.
  static constexpr std::uint32_t kGroup = 64;
  struct Bounds {
    shared_table::Number begin{0}, end{0};  // end 0: all are free
  };

  bool filled(std::uint32_t i) const { return slots_[i].entry.end != 0; }
  void put(std::uint32_t i, const Entry& entry);
  void update_bounds(std::uint32_t group);
  template <class Call>
  void for_overlapping(Range range, const Call& call) const;
  bool add(const Entry& entry, std::uint32_t taken);
  void split_at(std::uint64_t address);
  void empty_slot(std::uint32_t i);
  void publish(std::uint32_t i);
  void unpublish(std::uint32_t i);
  std::uint32_t used() const { return used_.load(std::memory_order_relaxed); }

  Slot slots_[shared_table::kMappings];
  Bounds bounds_[shared_table::kMappings / kGroup];
  std::uint32_t first_free_ = 0;   // slots before it are filled
  shared_table::Word used_{0};     // slots from here on are free
  shared_table::Word version_{0};  // odd while the table is being changed
  std::uint32_t last_taken_ = 0;
  Copy copy_;
};

}  // namespace evenkeel::preload
