// Allocates buffer space for reads in flight from a ring. Reads start in order and end in any
// order.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/checked.h"

namespace evenkeel {

// Not thread-safe. It only computes offsets; the caller owns the memory.
class RingArena {
 public:
  // Pieces begin at multiples of `unit`.
  explicit RingArena(std::uint64_t capacity, std::uint64_t unit = 1)
      : capacity_(round_down(capacity, unit)), unit_(unit) {}

  struct Piece {
    std::uint64_t begin = 0;
    std::uint64_t ticket = 0;  // for give_back
  };

  // Returns contiguous space, or nothing if older pieces must be given back first.
  // 1 <= wanted <= capacity.
  std::optional<Piece> take(std::uint64_t wanted) {
    const std::uint64_t size = round_up(wanted, unit_);
    if (pieces_.empty()) head_ = 0;
    const std::uint64_t tail = pieces_.empty() ? 0 : pieces_.front().begin;
    std::uint64_t begin = head_;
    if (pieces_.empty() || head_ > tail) {
      if (head_ + size > capacity_) {  // does not fit at the end: wrap around
        if (pieces_.empty() || size > tail) return std::nullopt;
        begin = 0;
      }
    } else if (head_ + size > tail) {
      return std::nullopt;
    }
    pieces_.push_back({begin, false});
    head_ = begin + size;
    return Piece{begin, first_ticket_ + pieces_.size() - 1};
  }

  void give_back(std::uint64_t ticket) {
    pieces_[ticket - first_ticket_].done = true;
    while (!pieces_.empty() && pieces_.front().done) {
      pieces_.pop_front();
      ++first_ticket_;
    }
  }

  bool empty() const { return pieces_.empty(); }

 private:
  struct Entry {
    std::uint64_t begin;
    bool done;
  };
  std::uint64_t capacity_, unit_;
  std::uint64_t head_ = 0;
  std::uint64_t first_ticket_ = 0;
  std::deque<Entry> pieces_;
};

}  // namespace evenkeel
