// Questions to the page cache, without side effects.
#pragma once

#include <cstdint>
#include <vector>

#include "base/sys.h"

namespace evenkeel {

// Whether every page of the range is in the cache. Also false where the kernel does not answer: it
// does so for users who own the file or may write it, since Linux 6.5.
inline bool is_cached(int fd, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t page = sys::page_size();
  const std::uint64_t pages = (offset + length + page - 1) / page - offset / page;
  sys::CacheStat stat{};
  return sys::cachestat(fd, offset, length, &stat) == 0 && stat.cached >= pages;
}

// The pages of a range that reading it will bring into the cache. Only these are dropped
// afterwards, so that pages that others have cached stay. All of the range if the kernel does not
// answer.
class Uncached {
 public:
  Uncached(int fd, std::uint64_t offset, std::uint64_t length);
  bool empty() const { return ranges_.empty(); }
  // Drops them from the cache. Pages that are still mapped stay.
  void drop(int fd) const;

 private:
  struct PageRange {
    std::uint64_t begin, end;  // in pages
  };
  void look(int fd, PageRange range);

  std::vector<PageRange> ranges_;
};

// Remembers for a moment which regions of a file were found wholly cached, so that data which is
// all in memory is not asked about crop by crop. One thread at a time.
class Residency {
 public:
  // `readahead`: the window that a buffered read may set off. It looks that far ahead for holes to
  // fill, so a region counts only when what follows it is cached as well.
  Residency(std::uint64_t file_size, std::uint64_t readahead);

  // Whether the range lies in regions that were wholly cached less than a second ago. Asks the
  // kernel about a region when it comes up for the second time, or for a large part of it.
  bool surely_cached(int fd, std::uint64_t offset, std::uint64_t length);
  // Forgets what is a second old. Called now and then; surely_cached does not look at the clock.
  void age();

 private:
  enum class State : std::uint8_t { kUnknown, kSeen, kFull, kNotFull };
  bool full(int fd, std::uint64_t region);

  std::uint64_t file_size_, region_bytes_, look_ahead_;
  std::vector<State> states_;
  std::int64_t made_at_ns_ = 0;
};

}  // namespace evenkeel
