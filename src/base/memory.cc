#include "base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/checked.h"
#include "base/sys.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// The size on most machines. If huge pages are larger or missing, the advice has no effect.
constexpr std::uint64_t kHugePage = 2 << 20;

void* map_anywhere(std::uint64_t size) {
  return sys::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// Maps pages that start at a huge-page boundary. Linux chooses such an address only for whole huge
// pages (since 6.13) or never (before 6.7). So this maps more and unmaps what is around it.
void* map_aligned(std::uint64_t size) {
  if (size > UINT64_MAX - kHugePage) return MAP_FAILED;
  void* const around = map_anywhere(size + kHugePage);
  if (around == MAP_FAILED) return around;
  const auto begin = reinterpret_cast<std::uintptr_t>(around);
  const std::uint64_t before = round_up(begin, kHugePage) - begin;
  std::byte* const pages = static_cast<std::byte*>(around) + before;
  if (before > 0) sys::munmap(around, before);
  if (before < kHugePage) sys::munmap(pages + size, kHugePage - before);
  return pages;
}

}  // namespace

Pages::Pages(std::uint64_t bytes, std::string_view what) {
  if (bytes == 0) return;
  const std::uint64_t size = round_up(bytes, sys::page_size());
  void* pages = size >= kHugePage ? map_aligned(size) : MAP_FAILED;
  if (pages == MAP_FAILED) pages = map_anywhere(size);
  if (pages == MAP_FAILED) {
    throw Error::system("allocate", errno,
                        "could not allocate " + format_size(size) + " for " + std::string(what))
        .hint("the process may be at its address-space limit (ulimit -v)");
  }
  // A disk request lists contiguous segments of memory. With huge pages, a read of 1 MiB has one
  // segment instead of 256, which is more than some disks accept in one request. If the advice is
  // refused, reads are only slower.
  if (size >= kHugePage) sys::madvise(pages, size, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(pages);
  size_ = size;
}

std::vector<Pages> Pages::several(std::size_t count, std::uint64_t bytes, std::string_view what) {
  const std::uint64_t each = round_up(bytes, sys::page_size());
  std::vector<Pages> parts;
  parts.reserve(count);
  Pages all(checked_mul(count, each).value_or(UINT64_MAX), what);
  while (all.data_) {
    Pages part;
    part.data_ = all.data_;
    part.size_ = each;
    all.size_ -= each;
    all.data_ = all.size_ > 0 ? all.data_ + each : nullptr;
    parts.push_back(std::move(part));
  }
  return parts;
}

void Pages::trim(const std::byte* end) {
  const std::uint64_t kept = round_up(static_cast<std::uint64_t>(end - data_), sys::page_size());
  if (kept == size_) return;
  if (kept == 0) return reset();
  sys::munmap(data_ + kept, size_ - kept);
  size_ = kept;
}

void Pages::reset() {
  if (data_) sys::munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

PageBuffer::PageBuffer(const Budget& budget, std::uint64_t bytes, std::string_view what)
    // A size that would round up past 2^64 is reserved unrounded, and therefore refused.
    : share_(budget.reserve(std::max(bytes, round_up(bytes, sys::page_size())), what)),
      pages_(bytes, what) {}

}  // namespace evenkeel
