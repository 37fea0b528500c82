#include "engine/page_cache.h"

#include <algorithm>

#include "base/checked.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kSmallestRegion = 2 << 20;
constexpr std::uint64_t kMostRegions = 1 << 16;
constexpr std::int64_t kGoodForNs = 1'000'000'000;

}  // namespace

Uncached::Uncached(int fd, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t page = sys::page_size();
  look(fd, {offset / page, divide_up(offset + length, page)});
}

// Bisects a partly cached range, down to single pages. A range that is cached completely or not at
// all takes one call.
void Uncached::look(int fd, PageRange range) {
  const std::uint64_t page = sys::page_size(), pages = range.end - range.begin;
  if (pages == 0) return;
  sys::CacheStat stat{};
  const bool known = sys::cachestat(fd, range.begin * page, pages * page, &stat) == 0;
  if (known && stat.cached >= pages) return;
  if (known && stat.cached > 0 && pages > 1) {
    const std::uint64_t middle = range.begin + pages / 2;
    look(fd, {range.begin, middle});
    look(fd, {middle, range.end});
  } else if (!ranges_.empty() && ranges_.back().end == range.begin) {
    ranges_.back().end = range.end;
  } else {
    ranges_.push_back(range);
  }
}

void Uncached::drop(int fd) const {
  const std::uint64_t page = sys::page_size();
  for (const auto& [begin, end] : ranges_) {
    sys::fadvise(fd, begin * page, (end - begin) * page, POSIX_FADV_DONTNEED);
  }
}

Residency::Residency(std::uint64_t file_size, std::uint64_t readahead)
    : file_size_(file_size), region_bytes_(kSmallestRegion) {
  while (file_size / region_bytes_ >= kMostRegions) region_bytes_ *= 2;
  look_ahead_ = divide_up(readahead, region_bytes_);
  states_.resize(file_size / region_bytes_ + 1, State::kUnknown);
}

bool Residency::full(int fd, std::uint64_t region) {
  State& state = states_[region];
  if (state == State::kUnknown || state == State::kSeen) {
    const std::uint64_t begin = region * region_bytes_;
    const std::uint64_t length = std::min(region_bytes_, file_size_ - begin);
    state = length == 0 || is_cached(fd, begin, length) ? State::kFull : State::kNotFull;
  }
  return state == State::kFull;
}

bool Residency::surely_cached(int fd, std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t first = offset / region_bytes_;
  State& state = states_[first];
  if (state == State::kNotFull) return false;
  if (state == State::kUnknown && length < region_bytes_ / 4) {
    state = State::kSeen;
    return false;
  }
  const std::uint64_t last =
      std::min((offset + length - 1) / region_bytes_ + look_ahead_, states_.size() - 1);
  for (std::uint64_t region = first; region <= last; ++region) {
    if (!full(fd, region)) return false;
  }
  return true;
}

void Residency::age() {
  const std::int64_t now = sys::monotonic_ns();
  if (now >= made_at_ns_ && now - made_at_ns_ < kGoodForNs) return;
  made_at_ns_ = now;
  std::ranges::fill(states_, State::kUnknown);
}

}  // namespace evenkeel
