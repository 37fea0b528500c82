#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/checked.h"
#include "base/sys.h"
#include "evenkeel/error.h"

namespace evenkeel {
PageBuffer::PageBuffer(const Budget& budget, std::uint64_t bytes, std::string_view what)
    : size_(round_up(bytes, sys::page_size())),
      // A size that rounds up past 2^64 is asked for as it is, and so refused.
      reservation_(budget.reserve(std::max(bytes, size_), what)) {
  if (bytes == 0) return;
  void* pages =
      sys::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) {
    throw Error::system("allocate", errno,
                        format_size(size_) + " of " + std::string(what) + " could not be had")
        .hint("the process may be at its address-space limit (ulimit -v)");
  }
  data_ = static_cast<std::byte*>(pages);
}

void PageBuffer::reset() {
  if (data_) sys::munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
  reservation_.release();
}

}  // namespace evenkeel
