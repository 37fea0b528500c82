#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/checked.h"
#include "base/sys.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kHugePage = 2 << 20;

void* map_pages(std::uint64_t bytes) {
  return sys::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// More than is wanted, trimmed so that the rest begins at a huge page. Whole huge pages lie inside
// the range, so no more becomes resident than was asked for.
void* map_huge(std::uint64_t bytes) {
  void* pages = map_pages(bytes + kHugePage);
  if (pages == MAP_FAILED) return map_pages(bytes);
  const auto begin = reinterpret_cast<std::uintptr_t>(pages);
  const std::uintptr_t aligned = round_up(begin, kHugePage);
  if (aligned > begin) sys::munmap(pages, aligned - begin);
  if (const std::uint64_t behind = begin + kHugePage - aligned; behind > 0) {
    sys::munmap(reinterpret_cast<void*>(aligned + bytes), behind);
  }
  sys::madvise(reinterpret_cast<void*>(aligned), bytes, MADV_HUGEPAGE);
  return reinterpret_cast<void*>(aligned);
}

}  // namespace

PageBuffer::PageBuffer(const Budget& budget, std::uint64_t bytes, std::string_view what)
    : size_(round_up(bytes, sys::page_size())),
      // A size that rounds up past 2^64 is asked for as it is, and so refused.
      reservation_(budget.reserve(std::max(bytes, size_), what)) {
  if (bytes == 0) return;
  void* pages = size_ >= kHugePage ? map_huge(size_) : map_pages(size_);
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
