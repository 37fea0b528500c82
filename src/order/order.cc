#include "evenkeel/order.h"

#include <algorithm>
#include <string>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "order/block_order.h"
#include "order/philox.h"

namespace evenkeel {
namespace {

const char* name(OrderKind kind) {
  switch (kind) {
    case OrderKind::kShuffled:
      return "shuffled";
    case OrderKind::kRandom:
      return "random";
    case OrderKind::kBlocks:
      return "blocks";
    case OrderKind::kSequential:
      break;
  }
  return "sequential";
}

std::uint64_t positions_of_rank(const Order& order, std::uint64_t rows) {
  if (order.world == 0) {
    throw Error(ErrorKind::kInvalid, "order", "world size is 0")
        .hint("world is the number of processes that share the rows: 1 or more");
  }
  if (order.rank >= order.world) {
    throw Error(ErrorKind::kInvalid, "order",
                "rank " + std::to_string(order.rank) + " is outside a world of " +
                    std::to_string(order.world))
        .hint("ranks count from 0; the last one is " + std::to_string(order.world - 1));
  }
  return order.rank < rows ? (rows - order.rank - 1) / order.world + 1 : 0;
}

[[noreturn]] void throw_invalid_draw(std::uint64_t counter, std::uint64_t n) {
  if (n == 0) {
    throw Error(ErrorKind::kInvalid, "draw", "cannot draw from 0 rows").hint("use at least 1 row");
  }
  throw Error(ErrorKind::kInvalid, "draw",
              "draw number " + std::to_string(counter) + " is above the maximum, 2^63-1")
      .hint("begin a new epoch; each has 2^63 draws");
}

}  // namespace

std::string Order::describe() const {
  std::string text = name(kind);
  if (kind == OrderKind::kBlocks) {
    text += " of " + with_commas(blocks.block_rows) + " rows, windows of " +
            with_commas(blocks.window_blocks) + " blocks, " + with_commas(blocks.streams) +
            " streams";
  }
  if (kind != OrderKind::kSequential) {
    text += ", seed " + std::to_string(seed) + ", epoch " + std::to_string(epoch);
  }
  if (world != 1) text += ", rank " + std::to_string(rank) + " of " + std::to_string(world);
  return text;
}

std::uint64_t uniform_draw(std::uint64_t seed, std::uint64_t epoch, std::uint64_t counter,
                           std::uint64_t n) {
  if (n == 0 || counter >> 63 != 0) throw_invalid_draw(counter, n);
  return scale(philox(seed, epoch, Stream::kDraws, counter), n);
}

Sequence::Sequence(const Order& order, std::uint64_t rows)
    : order_(order),
      rows_(rows),
      size_(positions_of_rank(order, rows)),
      permutation_(std::max<std::uint64_t>(rows, 1), order.seed, order.epoch) {
  if (order.kind == OrderKind::kBlocks) blocks_ = std::make_shared<BlockOrder>(order, rows);
}

std::uint64_t Sequence::operator[](std::uint64_t position) const {
  std::uint64_t row;
  fill(position, {&row, 1});
  return row;
}

void Sequence::fill(std::uint64_t first, std::span<std::uint64_t> rows) const {
  if (first > size_ || rows.size() > size_ - first) {
    throw Error(ErrorKind::kIndex, "order",
                std::to_string(rows.size()) + " rows from position " + std::to_string(first) +
                    " run past the end: the number of positions of this rank is " +
                    std::to_string(size_));
  }
  std::uint64_t position = first * order_.world + order_.rank;
  switch (order_.kind) {
    case OrderKind::kSequential:
      for (auto& row : rows) {
        row = position;
        position += order_.world;
      }
      break;
    case OrderKind::kShuffled:
      permutation_.fill(position, order_.world, rows);
      break;
    case OrderKind::kRandom:
      for (auto& row : rows) {
        row = uniform_draw(order_.seed, order_.epoch, position, rows_);
        position += order_.world;
      }
      break;
    case OrderKind::kBlocks:
      blocks_->fill(position, rows);
      break;
  }
}

std::optional<std::uint64_t> Sequence::find(std::uint64_t row) const {
  if (order_.kind == OrderKind::kRandom) {
    throw Error(ErrorKind::kInvalid, "order", "a random order has no inverse")
        .hint("draws repeat: a row may come several times, or not at all");
  }
  if (row >= rows_) {
    throw Error(
        ErrorKind::kIndex, "order",
        "row " + std::to_string(row) + " is outside the " + std::to_string(rows_) + " rows");
  }
  std::uint64_t position = row;
  if (order_.kind == OrderKind::kShuffled) position = permutation_.inverse(row);
  if (order_.kind == OrderKind::kBlocks) position = blocks_->position_of(row);
  if (position % order_.world != order_.rank) return std::nullopt;
  return position / order_.world;
}

}  // namespace evenkeel
