// Checks what is in the page cache, without side effects.
#pragma once

#include <cstdint>
#include <vector>

#include "base/checked.h"
#include "base/sys.h"

namespace evenkeel {

// Whether every page of the range is in the cache. Also false if the kernel does not say: it needs
// cachestat (Linux 6.5) and a user who owns the file or may write to it.
inline bool is_cached(int fd, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t page = sys::page_size();
  const std::uint64_t pages = divide_up(offset + length, page) - offset / page;
  sys::CacheStat stat{};
  return sys::cachestat(fd, offset, length, &stat) == 0 && stat.cached >= pages;
}

// The pages of a range that are not in the cache before it is read. Only these are dropped
// afterwards, so that pages that others have cached stay. The whole range if the kernel does not
// say.
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

// Remembers for a moment which regions of a file were found completely cached, so that the kernel
// is not asked again for every crop of data that is in memory. Not thread-safe.
class Residency {
 public:
  // `readahead` is the largest readahead window of a buffered read. Readahead fills holes that far
  // ahead, so a region counts as cached only if the regions within this window are cached as well.
  Residency(std::uint64_t file_size, std::uint64_t readahead);

  // Whether the range lies in regions that were completely cached less than a second ago. Asks the
  // kernel about a region at the second call, or at the first if the range is a large part of it.
  bool surely_cached(int fd, std::uint64_t offset, std::uint64_t length);
  // Forgets everything once it is a second old. The caller calls this from time to time, because
  // surely_cached does not read the clock.
  void age();

 private:
  enum class State : std::uint8_t { kUnknown, kSeen, kFull, kNotFull };
  bool full(int fd, std::uint64_t region);

  std::uint64_t file_size_, region_bytes_, look_ahead_;
  std::vector<State> states_;
  std::int64_t made_at_ns_ = 0;
};

}  // namespace evenkeel
