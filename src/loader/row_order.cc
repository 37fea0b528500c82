#include "loader/row_order.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "evenkeel/error.h"
#include "evenkeel/loader.h"

namespace evenkeel {
namespace {

constexpr std::array<std::pair<std::string_view, OrderKind>, 4> kOrderNames = {{
    {"sequential", OrderKind::kSequential},
    {"shuffled", OrderKind::kShuffled},
    {"random", OrderKind::kRandom},
    {"blocks", OrderKind::kBlocks},
}};

}  // namespace

OrderKind parse_order(std::string_view name) {
  std::string names;
  for (const auto& [text, order] : kOrderNames) {
    if (text == name) return order;
    names += (names.empty() ? "" : ", ") + std::string(text);
  }
  throw Error(ErrorKind::kInvalid, "order", "\"" + std::string(name) + "\" is not an order")
      .hint("the orders are " + names);
}

std::string_view order_name(OrderKind order) {
  for (const auto& [text, kind] : kOrderNames) {
    if (kind == order) return text;
  }
  return "unknown";
}

std::uint64_t whole_turns(const Order& order, std::uint64_t rows) {
  return order.kind == OrderKind::kBlocks ? rows - rows % order.blocks.streams : rows;
}

std::uint64_t RowOrder::turn() const {
  const Order order = order_->get();
  return order.kind == OrderKind::kBlocks ? order.blocks.streams : 1;
}

const Sequence& RowOrder::sequence(const Order& order) {
  if (!sequence_ || sequence_->order() != order) sequence_.emplace(order, rows_);
  return *sequence_;
}

SampleOrder::Place RowOrder::at(std::uint64_t position) {
  std::uint64_t row;
  fill({position, 1, 1}, {&row, 1});
  const Order order = order_->get();
  return {row, order.kind != OrderKind::kRandom ? position / rows_of_epoch(order) : 0};
}

void RowOrder::fill(const Steps::Run& positions, std::span<std::uint64_t> rows) {
  const Order order = order_->get();
  const std::uint64_t distance = positions.distance;
  std::uint64_t position = positions.first;
  if (order.kind == OrderKind::kRandom) {
    for (std::uint64_t& row : rows) {
      row = uniform_draw(order.seed, 0, position, rows_);
      position += distance;
    }
    return;
  }
  const std::uint64_t rows_of_epoch = this->rows_of_epoch(order);
  while (!rows.empty()) {
    const std::uint64_t epoch = position / rows_of_epoch, within = position % rows_of_epoch;
    // These are the rows that one rank of a world of `distance` takes.
    const Order of_rank = order.at_epoch(epoch).for_rank(within % distance, distance);
    const std::uint64_t left = (rows_of_epoch - within - 1) / distance + 1;
    const std::uint64_t now = std::min<std::uint64_t>(left, rows.size());
    sequence(of_rank).fill(within / distance, rows.first(now));
    position += now * distance;
    rows = rows.subspan(now);
  }
}

}  // namespace evenkeel
