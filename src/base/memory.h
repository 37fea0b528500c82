// Memory in whole pages, aligned for O_DIRECT. The destructors return it to the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/budget.h"

namespace evenkeel {

// Anonymous pages that are not counted in any budget. They become resident when they are touched: 2
// MiB at a time if there are that many and the system has huge pages. Movable, not copyable.
class Pages {
 public:
  Pages() = default;
  // Rounds up to whole pages; 0 bytes are no pages. Throws Error (kSystem, ENOMEM).
  Pages(std::uint64_t bytes, std::string_view what);
  // Allocates adjacent buffers of `bytes` each, so that small ones share huge pages. Each is freed
  // separately.
  static std::vector<Pages> several(std::size_t count, std::uint64_t bytes, std::string_view what);
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    other.reset();
    return *this;
  }
  ~Pages() { reset(); }

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }

  // Frees the whole pages after `end`, which must lie within these pages.
  void trim(const std::byte* end);

 private:
  void reset();

  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

// Pages and the reservation that covers them. All pages are reserved from the start. Movable, not
// copyable.
class PageBuffer {
 public:
  PageBuffer() = default;
  // Throws Error: kBudget if it does not fit, kSystem (ENOMEM) if the system has no memory.
  PageBuffer(const Budget& budget, std::uint64_t bytes, std::string_view what);
  PageBuffer(PageBuffer&& other) noexcept = default;
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    pages_ = std::move(other.pages_);  // frees the old pages before their reservation
    share_ = std::move(other.share_);
    return *this;
  }
  ~PageBuffer() = default;

  std::byte* data() const { return pages_.data(); }
  std::uint64_t size() const { return pages_.size(); }
  explicit operator bool() const { return static_cast<bool>(pages_); }

  // See Reservation::keep_in_children.
  void keep_in_children() { share_.keep_in_children(); }

 private:
  Reservation share_;
  Pages pages_;
};

}  // namespace evenkeel
