// Memory in whole pages, aligned for O_DIRECT, given back to the system when it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "evenkeel/budget.h"

namespace evenkeel {

// Anonymous pages that nobody has paid for. They become resident when they are touched, 2 MiB at a
// time where there are as many and the system has huge pages to give. Moves, does not copy.
class Pages {
 public:
  Pages() = default;
  // Rounds up to whole pages; of 0 bytes there are none. Throws Error (kSystem, ENOMEM).
  Pages(std::uint64_t bytes, std::string_view what);
  // Buffers of `bytes` each that lie together, so that small ones share huge pages. Each is given
  // back by itself.
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

  // Gives back what lies beyond `end`, a place in them, in whole pages.
  void trim(const std::byte* end);

 private:
  void reset();

  std::byte* data_ = nullptr;
  std::uint64_t size_ = 0;
};

// Pages and the share of the budget that pays for them, all of them from the start. Moves, does not
// copy.
class PageBuffer {
 public:
  PageBuffer() = default;
  // Throws Error (kBudget) when it does not fit, kSystem (ENOMEM) when the system has none.
  PageBuffer(const Budget& budget, std::uint64_t bytes, std::string_view what);
  PageBuffer(PageBuffer&& other) noexcept = default;
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    pages_ = std::move(other.pages_);  // the old ones go before their share does
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
