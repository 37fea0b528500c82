// Orders: which row comes at which position. An order is a pure function of (seed, epoch, position,
// rank, world size) and needs O(1) memory. docs/orders.md specifies it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "evenkeel/compiler.h"

// Internal, declared before the pragma so that a shared library does not export them.
namespace evenkeel {
class BlockOrder;
class WholeOrder;
}  // namespace evenkeel

#pragma GCC visibility push(default)

namespace evenkeel {

enum class OrderKind : std::uint8_t { kSequential, kShuffled, kRandom, kBlocks };

// The order kBlocks: neighbouring rows are read together as a block, and the rows of a window of
// blocks are mixed in memory. These numbers are part of the order: other numbers give another
// sequence of rows.
struct BlockOptions {
  // Rows that are read with one request. Smaller blocks mix better, larger ones read faster.
  std::uint64_t block_rows = 0;
  // Blocks that are mixed with each other. More blocks mix better and need more memory.
  std::uint64_t window_blocks = 0;
  // Each window is divided into this many streams, and a rank reads whole streams. The world size
  // must divide this number. The global sequence is the same for every world size that does.
  std::uint64_t streams = 64;

  // Rows of a full window; 2^64-1 if the product is larger.
  std::uint64_t window_rows() const;
  friend bool operator==(const BlockOptions&, const BlockOptions&) = default;
};

// The input of choose_blocks. It chooses each of block_rows, window_rows and streams that is 0.
struct BlockRequest {
  std::uint64_t row_bytes = 1;
  std::uint64_t budget = 0;  // bytes of this rank's budget; two windows take a quarter each
  std::uint64_t world = 1;
  std::uint64_t block_rows = 0;
  std::uint64_t window_rows = 0;  // of all ranks together; rounded up to whole blocks
  std::uint64_t streams = 0;
  // For a mixture: the number of sets, which share the budget evenly, and the rows of a step of all
  // ranks together.
  std::uint64_t sets = 1, step_rows = 0;
};
// Chooses block and window sizes. A large window has 2,048 or more blocks of 128 to 256 KiB. A
// smaller window has blocks of 128 KiB, or down to 32 KiB if it would otherwise have fewer than
// 512. The number of streams is a multiple of 64 and of the world size. A mixture takes as many
// rows of a set at a time as there are streams, so it has fewer streams: the world size times the
// largest power of two, up to 64 in all, with which a step holds 8 such groups of rows. The same
// request gives the same numbers on every machine.
BlockOptions choose_blocks(const BlockRequest& request);

// A plain value. The global order depends only on kind, seed, epoch and, for kBlocks, `blocks`.
// Rank and world are applied last: rank r of w takes global positions r, r+w, r+2w, ...
struct Order {
  OrderKind kind = OrderKind::kSequential;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  std::uint64_t rank = 0;
  std::uint64_t world = 1;
  BlockOptions blocks = {};  // for kBlocks; other orders ignore it

  Order at_epoch(std::uint64_t e) const { return {kind, seed, e, rank, world, blocks}; }
  Order for_rank(std::uint64_t r, std::uint64_t w) const {
    return {kind, seed, epoch, r, w, blocks};
  }
  std::string describe() const;  // "shuffled, seed 7, epoch 0, rank 1 of 8"
  friend bool operator==(const Order&, const Order&) = default;
};

inline Order sequential() { return {}; }
// Every row exactly once per epoch, in pseudorandom order, without an index array.
inline Order shuffled(std::uint64_t seed, std::uint64_t epoch = 0) {
  return {OrderKind::kShuffled, seed, epoch, 0, 1};
}
// Uniform draws with replacement.
inline Order random(std::uint64_t seed, std::uint64_t epoch = 0) {
  return {OrderKind::kRandom, seed, epoch, 0, 1};
}
// Every row once per epoch. Blocks of neighbouring rows are shuffled, and so are the rows within
// each window of blocks. It reads as fast as a scan, because a block is one request. docs/orders.md
// says how large a window must be.
inline Order block_shuffled(std::uint64_t seed, std::uint64_t epoch, const BlockOptions& blocks) {
  return {OrderKind::kBlocks, seed, epoch, 0, 1, blocks};
}

// A keyed bijection of 0..n-1: a Feistel network on bit_width(n-1) bits (at least 8) with cycle
// walking. It needs O(1) memory. The golden vectors in docs/orders.md freeze it forever. Immutable,
// so thread-safe.
class Permutation {
 public:
  // Throws Error (kInvalid) if n is 0. operator() and inverse() throw kIndex for an argument
  // outside 0..n-1.
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch);
  std::uint64_t operator()(std::uint64_t position) const;
  std::uint64_t inverse(std::uint64_t value) const;
  std::uint64_t size() const { return n_; }

 private:
  friend class Sequence;
  friend class BlockOrder;  // src/order/block_order.h
  friend class WholeOrder;  // src/tokens/whole_order.h
  // Its round keys are the Philox outputs at counters first_key, first_key + 1, ...
  struct KeysFrom {
    std::uint64_t first_key;
  };
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch, KeysFrom keys);

  struct RoundKey {
    std::uint64_t multiplier, addend;
  };
  static constexpr unsigned kMaxRounds = 12;

  std::uint64_t scramble(std::uint64_t x) const;
  std::uint64_t unscramble(std::uint64_t x) const;
  void check(const char* what, std::uint64_t argument) const;
  // The values at first, first + step, ...; all of these positions must be below n.
  void fill(std::uint64_t first, std::uint64_t step, std::span<std::uint64_t> values) const;

  std::uint64_t n_;
  unsigned low_bits_, high_bits_, rounds_;
  RoundKey keys_[kMaxRounds] = {};  // only the first rounds_ are used
};

// Draw number `counter` of a stream: uniform on 0..n-1, from 128 bits of Philox4x32-10. Throws
// Error (kInvalid) if n is 0 or counter is 2^63 or more: those counters are reserved for round
// keys.
std::uint64_t uniform_draw(std::uint64_t seed, std::uint64_t epoch, std::uint64_t counter,
                           std::uint64_t n);

// An Order applied to a number of rows. Immutable, so thread-safe. Indexing any position is O(1).
class Sequence {
 public:
  // Throws Error (kInvalid) if world is 0 or rank >= world; for kBlocks also if a number of
  // `blocks` is 0, or if world does not divide its streams.
  Sequence(const Order& order, std::uint64_t rows);
  std::uint64_t size() const { return size_; }  // number of positions of this rank
  std::uint64_t rows() const { return rows_; }
  const Order& order() const { return order_; }
  // The row at a position, or the rows at first, first+1, ... Throws Error (kIndex) beyond size().
  std::uint64_t operator[](std::uint64_t position) const;
  void fill(std::uint64_t first, std::span<std::uint64_t> rows) const;
  // The inverse: the position of this rank at which `row` comes; empty if another rank has it.
  // Throws Error (kIndex) for a row outside 0..rows()-1, and kInvalid for random, where a row may
  // come several times or not at all.
  std::optional<std::uint64_t> find(std::uint64_t row) const;

 private:
  Order order_;
  std::uint64_t rows_, size_;
  Permutation permutation_;
  std::shared_ptr<const BlockOrder> blocks_;  // only for kBlocks
};

}  // namespace evenkeel

#pragma GCC visibility pop
