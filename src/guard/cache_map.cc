#include "guard/cache_map.h"

#include <algorithm>
#include <bit>

#include "base/checked.h"
#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kLeastPart = 2_MiB, kLargestPart = 64_MiB;
constexpr std::uint64_t kMostParts = 1 << 16;

std::uint64_t part_size(std::uint64_t length, std::uint64_t budget) {
  std::uint64_t bytes = std::clamp(std::bit_floor(budget / 8), kLeastPart, kLargestPart);
  while (length / bytes >= kMostParts) bytes *= 2;
  return bytes;
}

}  // namespace

CacheMap::CacheMap(std::uint64_t file_offset, std::uint64_t length, std::uint64_t budget)
    : length_(length),
      part_bytes_(part_size(length, budget)),
      first_bytes_(std::min(length, part_bytes_ - file_offset % part_bytes_)),
      first_(file_offset / part_bytes_),
      parts_(1 + divide_up(length - first_bytes_, part_bytes_)) {}

void CacheMap::take_over(const CacheMap& other) {
  fetched_ = other.fetched_;
  looked_ = other.looked_;
  if (other.part_bytes_ != part_bytes_) return;  // this map is longer and has larger parts
  for (std::size_t part = 0; part < other.size(); ++part) {
    const std::uint64_t place = other.first_ + part - first_;  // wraps for parts before the first
    if (place >= size()) continue;
    cached_ = cached_ - parts_[place].cached + other[part].cached;
    parts_[place] = other[part];
  }
}

CacheMap::Range CacheMap::range(std::size_t first, std::size_t end) const {
  const auto start = [&](std::size_t part) {
    return part == 0 ? 0 : std::min(length_, first_bytes_ + (part - 1) * part_bytes_);
  };
  return {start(first), start(end) - start(first)};
}

CacheMap::Range CacheMap::range(std::size_t part) const { return range(part, part + 1); }

bool CacheMap::sparse(std::size_t begin, std::size_t end) const {
  const auto filled = std::count_if(parts_.begin() + static_cast<std::ptrdiff_t>(begin),
                                    parts_.begin() + static_cast<std::ptrdiff_t>(end),
                                    [](const Part& part) { return part.cached != 0; });
  return static_cast<std::size_t>(filled) * 2 < end - begin;
}

void CacheMap::found(std::size_t part, const Found& what, std::uint64_t now) {
  Part& one = parts_[part];
  if (one.cached == 0) one.since = now;
  one.grown = what.cached > one.cached ? what.cached - one.cached : 0;
  fetched_ += one.grown;
  cached_ = cached_ - one.cached + what.cached;
  one.cached = what.cached;
  one.dirty = what.dirty;
}

void CacheMap::released(std::size_t part, const Found& left, std::uint64_t now) {
  found(part, left, now);
  Part& one = parts_[part];
  const bool wait = left.dirty != 0 && left.cached <= left.dirty && !one.writing;
  one.writing = wait;
  if (!wait) one.since = now;
}

}  // namespace evenkeel
