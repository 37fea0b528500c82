// The parts of a file, how much of each is cached, and since when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace evenkeel {

// Parts begin at multiples of their size in the file, where large folios begin, too. They are small
// compared to the budget, so that the oldest parts can be released while the rest stays.
class CacheMap {
 public:
  struct Part {
    std::uint64_t cached = 0;  // bytes
    std::uint64_t dirty = 0;   // of these, changed or being written
    std::uint64_t grown = 0;   // growth since the previous look, in bytes
    std::uint64_t since = 0;   // the number of the look that found its first page
    bool writing = false;      // released, but the kernel keeps it until it is written
  };
  struct Found {
    std::uint64_t cached = 0, dirty = 0;  // bytes
  };
  struct Range {
    std::uint64_t begin = 0, length = 0;  // relative to the file offset
  };

  CacheMap(std::uint64_t file_offset, std::uint64_t length, std::uint64_t budget);
  // Copies the state of another map of the same file and budget.
  void take_over(const CacheMap& other);

  std::size_t size() const { return parts_.size(); }
  const Part& operator[](std::size_t part) const { return parts_[part]; }
  Range range(std::size_t part) const;
  std::uint64_t part_bytes() const { return part_bytes_; }
  std::uint64_t cached() const { return cached_; }  // bytes, all parts
  // Bytes that came into the page cache since the first look: the sum of the growth between looks.
  std::uint64_t fetched() const { return fetched_; }

  // Asks about all parts: `ask(Range)` returns Found. A group of parts that were mostly empty at
  // the last look is asked about as a whole first.
  template <class Ask>
  void look(std::uint64_t now, const Ask& ask) {
    for (std::size_t begin = 0; begin < parts_.size(); begin += kGroup) {
      const std::size_t end = begin + kGroup < parts_.size() ? begin + kGroup : parts_.size();
      const bool empty = sparse(begin, end) && ask(range(begin, end)).cached == 0;
      for (std::size_t part = begin; part < end; ++part) {
        found(part, empty ? Found{} : ask(range(part)), now);
      }
    }
    if (!looked_) fetched_ = 0;  // these pages were cached before
    looked_ = true;
  }
  void found(std::size_t part, const Found& what, std::uint64_t now);
  // Records what an attempt to release the part has left. If pages are left, the part counts as
  // new, so that others are released first. A part that must be written first keeps its age for a
  // second attempt.
  void released(std::size_t part, const Found& left, std::uint64_t now);

 private:
  static constexpr std::size_t kGroup = 64;
  bool sparse(std::size_t begin, std::size_t end) const;
  Range range(std::size_t first, std::size_t end) const;

  std::uint64_t length_, part_bytes_, first_bytes_;
  std::uint64_t first_;  // the index of the first part, counted from the beginning of the file
  std::uint64_t cached_ = 0, fetched_ = 0;
  bool looked_ = false;
  std::vector<Part> parts_;
};

}  // namespace evenkeel
