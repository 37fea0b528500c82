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
  std::uint64_t device = 0;  // as in /proc/PID/maps, see proc_maps.h; 0: not read yet
  std::uint32_t file = 0, file_generation = 0;  // entry in the shared table
  std::uint32_t flags = 0;                      // shared_table::MappingFlags
  std::uint32_t descriptor = 0;                 // that the program mapped the file with
};

// Only touches() may be called without holding Agent::lock().
class MappingTable {
 public:
  // Whether an entry may overlap the range. While other threads change the table, it may return
  // true without such an entry, but never false with one.
  bool touches(Range range) const;

  // Sets where the copy for the tool goes (the process's entry and its array) and writes all
  // entries there. Without a process there is no copy.
  struct Copy {
    shared_table::Process* process = nullptr;
    shared_table::Mapping* mappings = nullptr;
    shared_table::Word* lost = nullptr;  // counts mappings that did not fit
  };
  void publish_on(const Copy& copy);

  // Replaces entries in its range, as mmap does.
  void insert(const Entry& entry);
  void remove(Range range);
  void remove_slot(std::uint32_t slot);
  void clear();
  void add_flags(Range range, std::uint32_t flags);
  void add_flags_to_slot(std::uint32_t slot, std::uint32_t flags);
  void set_device(std::uint32_t slot, std::uint64_t device);

  // Call it before a call that may unmap the range: commands then no longer find its entries. After
  // that call, pass the returned number to one of the three functions below. Returns 0 if there are
  // no entries.
  std::uint32_t take(Range range);
  void give_back(std::uint32_t taken);
  void drop(std::uint32_t taken);
  // Moves the taken entries as mremap did: from `from` to `to`, which may have another length. With
  // `stays`, the old range remains mapped, too.
  void move(std::uint32_t taken, Range from, Range to, bool stays);

  // Finds the entry that a command refers to. Returns false if it is gone or has changed.
  bool find(std::uint32_t slot, std::uint32_t generation, Entry& out) const;
  // Finds the entry that contains the address.
  bool at(std::uint64_t address, Entry& out) const;
  bool empty() const { return used_.load(std::memory_order_relaxed) == 0; }

  // For a child of fork. If another thread of the parent was changing the table, it may be
  // inconsistent, so all entries are removed. Entries that were taken are removed in any case.
  void after_fork();

 private:
  struct Slot {
    shared_table::Number begin{0}, end{0};  // of `entry`, for `touches`
    Entry entry;
    std::uint32_t generation = 0;
    std::uint32_t taken = 0;
  };
  class Change;
  // The lowest and highest addresses of a group of slots let a search skip the group. A program
  // with thousands of mappings may call munmap as often as any other.
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
  shared_table::Word used_{0};     // slots from this index on are free
  shared_table::Word version_{0};  // odd while the table is being changed
  std::uint32_t last_taken_ = 0;
  Copy copy_;
};

}  // namespace evenkeel::preload
