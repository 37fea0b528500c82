// Which rows come when: a pure function of (seed, epoch, position, rank, world), in O(1) memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace evenkeel {

enum class OrderKind : std::uint8_t { kSequential, kShuffled, kRandom };

// A plain value. The global order depends on kind, seed and epoch alone; rank and world cut it in
// the last step: rank r of w takes global positions r, r+w, r+2w, ...
struct Order {
  OrderKind kind = OrderKind::kSequential;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t rank = 0;
  std::uint64_t world = 1;

  Order at_epoch(std::uint64_t e) const { return {kind, seed, e, rank, world}; }
  Order for_rank(std::uint64_t r, std::uint64_t w) const { return {kind, seed, epoch, r, w}; }
  std::string describe() const;  // "shuffled, seed 7, epoch 0, rank 1 of 8"
  friend bool operator==(const Order&, const Order&) = default;
};

inline Order sequential() { return {}; }
// Every row once an epoch, in an order that looks random; exact, without an index array.
inline Order shuffled(std::uint64_t seed, std::uint64_t epoch = 0) {
  return {OrderKind::kShuffled, seed, epoch, 0, 1};
}
// Uniform draws with replacement.
inline Order random(std::uint64_t seed, std::uint64_t epoch = 0) {
  return {OrderKind::kRandom, seed, epoch, 0, 1};
}

// A keyed bijection of 0..n-1: a Feistel network on bit_width(n-1) bits with cycle walking. O(1)
// memory; frozen for ever by the golden vectors in docs/orders.md. Immutable, so thread-safe.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch);  // n >= 1
  std::uint64_t operator()(std::uint64_t position) const;                 // position < n
  std::uint64_t inverse(std::uint64_t value) const;                       // value < n
  std::uint64_t size() const { return n_; }

 private:
  static constexpr int kRounds = 8;
  std::uint64_t n_;
  unsigned low_bits_, high_bits_;
  std::uint64_t keys_[kRounds];
};

// Draw number `counter` of a stream: uniform on 0..n-1 from 128 bits of Philox4x32-10.
std::uint64_t uniform_draw(std::uint64_t seed, std::uint64_t epoch, std::uint64_t counter,
                           std::uint64_t n);

// An Order bound to a number of rows. Immutable, so thread-safe; seeking is indexing.
class Sequence {
 public:
  // Throws Error (kInvalid) when world is 0 or rank >= world.
  Sequence(const Order& order, std::uint64_t rows);
  std::uint64_t size() const { return size_; }  // positions that this rank has
  std::uint64_t rows() const { return rows_; }
  const Order& order() const { return order_; }
  std::uint64_t operator[](std::uint64_t position) const;               // the row at a position
  void fill(std::uint64_t first, std::span<std::uint64_t> rows) const;  // rows of first, first+1...

 private:
  Order order_;
  std::uint64_t rows_, size_;
  Permutation permutation_;
};

}  // namespace evenkeel
