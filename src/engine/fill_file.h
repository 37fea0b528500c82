// What the engine `fill` keeps of a file: its mapping, and which of its regions are in memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "base/sys.h"
#include "engine/mapping.h"

namespace evenkeel {

// What was found out about a region of a file. Threads read and write it without a lock, in one
// word. A lost update costs only another system call.
class RegionState {
 public:
  // A period of two seconds. What was found in a period is not checked again in that period.
  using Tick = std::uint32_t;
  static Tick now() { return static_cast<Tick>(sys::monotonic_ns() / kTickNs) & kTick; }

  // Whether it was checked in this period.
  bool checked(Tick tick) const { return (load() & (kTick | kChecked)) == (tick | kChecked); }
  // Whether it was checked in this period, and all of it was in memory.
  bool full(Tick tick) const {
    return (load() & (kTick | kChecked | kFull)) == (tick | kChecked | kFull);
  }
  // Whether all of it was in memory when it was last checked.
  bool was_full() const { return (load() & kFull) != 0; }

  void set_full(Tick tick) { store((load() & kTouched) | kChecked | kFull | tick); }
  void set_not_full(Tick tick) { store((load() & ~(kTick | kFull)) | kChecked | tick); }
  // Returns how many misses were counted since all of it was in memory, at most kMostMisses.
  std::uint32_t count_miss() {
    const std::uint32_t word = load();
    const std::uint32_t misses = std::min((word >> kMissShift) + 1, kMostMisses);
    store((word & ~(kMostMisses << kMissShift)) | misses << kMissShift);
    return misses;
  }

  // Whether this is the first access since the mapping was made: its page tables are not counted
  // yet.
  bool touch() { return (word_.fetch_or(kTouched, std::memory_order_relaxed) & kTouched) == 0; }
  // The mapping has no page tables any more. The next access checks the region, and so counts them.
  void forget_tables() { word_.fetch_and(~(kTouched | kChecked), std::memory_order_relaxed); }

 private:
  static constexpr std::int64_t kTickNs = 2'000'000'000;
  static constexpr std::uint32_t kTick = 0xffff;       // the period in which it was checked
  static constexpr std::uint32_t kChecked = 1U << 16;  // the period is valid
  static constexpr std::uint32_t kFull = 1U << 17;
  static constexpr std::uint32_t kTouched = 1U << 18;
  static constexpr std::uint32_t kMissShift = 24, kMostMisses = 0xff;

  std::uint32_t load() const { return word_.load(std::memory_order_relaxed); }
  void store(std::uint32_t word) { word_.store(word, std::memory_order_relaxed); }

  std::atomic<std::uint32_t> word_ = 0;
};

// A file: its mapping, and the state of its regions. Other threads use the mapping without a lock,
// so a mapping that was lost stays in the list after another has replaced it. The caller makes sure
// that one thread at a time calls map() and renew(). The rest is thread-safe once the first map()
// has returned.
class MappedFile {
 public:
  MappedFile() = default;
  // Lost mappings must not be unmapped: something else may be at their addresses by now.
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Without the states of regions.
  static std::uint64_t memory() { return sizeof(MappedFile) + kMemoryOfMapping; }

  // Whether it is mapped, and the mapping is not lost.
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // Maps it, for the first time or after the mapping was lost. Throws Error (kSystem).
  void map(int fd, const Segment& segment, std::uint64_t region_bytes);
  // Replaces the mapping in place: threads that copy out of it meanwhile find the same bytes at the
  // same address. Leaves the old mapping if the kernel refuses. A kernel without memory may unmap
  // the old mapping before it fails. Then this retries for a while and throws Error if that does
  // not help; the next map() maps the file at another address.
  void renew(int fd, const Segment& segment);
  const Mapping& mapping() const { return *current_.load(std::memory_order_acquire); }
  // Whether all of a range is in memory. False if the kernel does not say.
  bool in_memory(std::uint64_t offset, std::uint64_t length) const;

  std::unique_ptr<RegionState[]> regions;
  std::size_t region_count = 0;

 private:
  static constexpr std::uint64_t kMemoryOfMapping = 64;

  std::list<Mapping> made_;                        // only the last may be in use
  std::atomic<const Mapping*> current_ = nullptr;  // the last of made_
  bool may_ask_ = false;                           // mincore returns the truth for this file
  std::atomic<bool> ready_ = false;
};

}  // namespace evenkeel
