// The parts of a file, how much of each is cached, and since when.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace evenkeel {

// Parts are cut at multiples of their size in the file, where large folios begin, too. They are
// small against the budget, so that the oldest can go and the rest can stay.
class CacheMap {
 public:
  struct Part {
    std::uint64_t cached = 0;  // bytes
    std::uint64_t dirty = 0;   // of these, changed or being written
    std::uint64_t grown = 0;   // bytes more than at the look before
    std::uint64_t since = 0;   // the number of the look that found the first page of it
    bool writing = false;      // released, and kept by the kernel until it is written
  };
  struct Found {
    std::uint64_t cached = 0, dirty = 0;  // bytes
  };
  struct Range {
    std::uint64_t begin = 0, length = 0;  // from the file offset on
  };

  CacheMap(std::uint64_t file_offset, std::uint64_t length, std::uint64_t budget);
  // Copies the state of another map of the same file and budget.
  void take_over(const CacheMap& other);

  std::size_t size() const { return parts_.size(); }
  const Part& operator[](std::size_t part) const { return parts_[part]; }
  Range range(std::size_t part) const;
  std::uint64_t part_bytes() const { return part_bytes_; }
  std::uint64_t cached() const { return cached_; }  // bytes, all parts
  // Bytes that came into the page cache since the first look, by the growth between two looks.
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
    if (!looked_) fetched_ = 0;  // the pages were there before
    looked_ = true;
  }
  void found(std::size_t part, const Found& what, std::uint64_t now);
  // After an attempt to release it. A part of which pages are left counts as new, so that others go
  // first. But one that has to be written keeps its age for a second attempt.
  void released(std::size_t part, const Found& left, std::uint64_t now);

 private:
  static constexpr std::size_t kGroup = 64;
  bool sparse(std::size_t begin, std::size_t end) const;
  Range range(std::size_t first, std::size_t end) const;

  std::uint64_t length_, part_bytes_, first_bytes_;
  std::uint64_t first_;  // the index, in the whole file, of the part it begins in
  std::uint64_t cached_ = 0, fetched_ = 0;
  bool looked_ = false;
  std::vector<Part> parts_;
};

}  // namespace evenkeel
