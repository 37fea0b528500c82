#include "loader/row_order.h"

#include <array>
#include <string>
#include <utility>

#include "evenkeel/error.h"
#include "evenkeel/loader.h"

namespace evenkeel {
namespace {

constexpr std::array<std::pair<std::string_view, OrderKind>, 3> kOrderNames = {{
    {"sequential", OrderKind::kSequential},
    {"shuffled", OrderKind::kShuffled},
    {"random", OrderKind::kRandom},
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

SampleOrder::Place RowOrder::at(std::uint64_t position) {
  if (kind_ == OrderKind::kRandom) return {uniform_draw(seed_, 0, position, rows_), 0};
  const std::uint64_t epoch = position / rows_;
  if (kind_ == OrderKind::kSequential) return {position % rows_, epoch};
  if (!permutation_ || epoch != epoch_) {
    permutation_.emplace(rows_, seed_, epoch);
    epoch_ = epoch;
  }
  return {(*permutation_)(position % rows_), epoch};
}

}  // namespace evenkeel
