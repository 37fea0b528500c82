// Reads the numbers of an index one after another.
#pragma once

#include <cstdint>
#include <string>

#include "format/source.h"
#include "format/token_part.h"

namespace evenkeel {

// Reads a file from `offset` on, in windows of 64 KiB, because an index may be larger than the
// budget. Windows that were read are dropped from the page cache.
class IndexWindows {
 public:
  IndexWindows(const Source& source, std::uint64_t offset) : source_(source), next_(offset) {}

 protected:
  // The next `size` bytes. Throws Error (kFormat) if the file ends before.
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

template <class T>
class IndexNumbers : private IndexWindows {
 public:
  using IndexWindows::IndexWindows;
  T next() { return load_number<T>(take(sizeof(T))); }
};

}  // namespace evenkeel
