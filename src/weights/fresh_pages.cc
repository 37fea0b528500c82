#include "weights/fresh_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/checked.h"
#include "base/sys.h"
#include "base/thread.h"
#include "evenkeel/bytes.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace evenkeel {
namespace {

constexpr std::uint64_t kPiece = 4_MiB;  // two huge pages, which take about a millisecond
constexpr unsigned kMostThreads = 4;     // zero pages faster than any disk reads

}  // namespace

FreshPages::FreshPages(std::vector<std::span<std::byte>> spans) : spans_(std::move(spans)) {
  first_piece_.reserve(spans_.size());
  for (const std::span<std::byte> span : spans_) {
    first_piece_.push_back(pieces_);
    pieces_ += divide_up(span.size(), kPiece);
  }
  const unsigned wanted = std::clamp(std::thread::hardware_concurrency() / 4, 1U, kMostThreads);
  const auto threads = static_cast<std::size_t>(std::min<std::uint64_t>(wanted, pieces_));
  threads_.reserve(threads);
  try {
    while (threads_.size() < threads) threads_.push_back(start_thread([this] { touch(); }));
  } catch (const std::system_error&) {
    // Continue with the threads that were started.
  }
}

void FreshPages::touch() {
  for (;;) {
    const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    if (number >= pieces_) return;
    const auto after = std::ranges::upper_bound(first_piece_, number);
    const std::span<std::byte> span =
        spans_[static_cast<std::size_t>(after - first_piece_.begin()) - 1];
    const std::uint64_t begin = (number - *(after - 1)) * kPiece;
    const std::uint64_t length = std::min<std::uint64_t>(kPiece, span.size() - begin);
    // Round out to whole pages. They hold bytes of the span, so they are the caller's.
    const std::uint64_t page = sys::page_size();
    const auto address = reinterpret_cast<std::uintptr_t>(span.data() + begin);
    const std::uint64_t lead = address % page;
    if (sys::madvise(span.data() + begin - lead, round_up(lead + length, page),
                     MADV_POPULATE_WRITE) != 0 &&
        errno != EINTR && errno != EAGAIN) {
      next_ = pieces_;
      return;
    }
  }
}

void FreshPages::stop() {
  next_ = pieces_;
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  threads_.clear();
}

}  // namespace evenkeel
