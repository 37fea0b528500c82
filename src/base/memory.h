// Memory in whole pages, aligned for O_DIRECT, given back to the system when it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "evenkeel/budget.h"

namespace evenkeel {

// Anonymous pages and the share of the budget that pays for them. Pages become resident when they
// are touched; all of them are reserved from the start. Moves, does not copy.
class PageBuffer {
 public:
  PageBuffer() = default;
  // Rounds up to whole pages; of 0 bytes it is empty. Large ones begin at a huge page's boundary
  // and ask for huge pages: a hundred times fewer faults, and less for the kernel to pin. Throws
  // Error (kBudget) when it does not fit, kSystem (ENOMEM) when the system has none.
  PageBuffer(const Budget& budget, std::uint64_t bytes, std::string_view what);
  PageBuffer(PageBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        reservation_(std::move(other.reservation_)) {}
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    if (this == &other) return *this;
    reset();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    reservation_ = std::move(other.reservation_);
    return *this;
  }
  ~PageBuffer() { reset(); }

  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void reset();

  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
  Reservation reservation_;
};

}  // namespace evenkeel
