// Reads the numbers of an index one after another.
#pragma once

#include <cstdint>
#include <string>

#include "format/source.h"
#include "format/token_part.h"

namespace evenkeel {

// Reads a file from `offset` to its end in windows of 64 KiB, because an index may be larger than
// the budget. Windows that were read are dropped from the page cache.
class IndexWindows {
 public:
  IndexWindows(const Source& source, std::uint64_t offset) : source_(source), next_(offset) {}

 protected:
  // The next `size` bytes. Throws Error (kFormat) if the file is too short.
  const char* take(std::size_t size) {
    if (at_ + size > window_.size()) refill(size);
    at_ += size;
    return window_.data() + at_ - size;
  }

 private:
  void refill(std::size_t size);

  const Source& source_;
  std::uint64_t next_;  // where the next window begins
  std::string window_;
  std::size_t at_ = 0;  // the next byte to take from the window
};

// Calls use(first, count) for the numbers of an index that are checked when it is opened: all
// numbers if there are at most 2^20, otherwise samples that include the first and the last. So an
// index of a billion documents opens at once.
template <class Use>
void for_each_checked(std::uint64_t numbers, Use use) {
  constexpr std::uint64_t kAll = std::uint64_t{1} << 20, kPlaces = 16, kEach = 4096;
  if (numbers <= kAll) return use(std::uint64_t{0}, numbers);
  for (std::uint64_t i = 0; i < kPlaces; ++i) {
    const std::uint64_t left = numbers - kEach;
    use(left / (kPlaces - 1) * i + left % (kPlaces - 1) * i / (kPlaces - 1), kEach);
  }
}

template <class T>
class IndexNumbers : private IndexWindows {
 public:
  using IndexWindows::IndexWindows;
  T next() { return load_number<T>(take(sizeof(T))); }
};

}  // namespace evenkeel
