// Which row comes when, for one set of arrays: a pure function of (seed, position), in O(1) memory.
#pragma once

#include <cstdint>
#include <optional>

#include "evenkeel/order.h"
#include "loader/schedule.h"

namespace evenkeel {

// Position p is in epoch p / rows, at p % rows of that epoch's order; see docs/orders.md. One
// thread at a time: it remembers the order of the epoch it was last asked about.
class RowOrder final : public SampleOrder {
 public:
  RowOrder(std::uint64_t rows, OrderKind kind, std::uint64_t seed)
      : rows_(rows), kind_(kind), seed_(seed) {}

  Place at(std::uint64_t position) override;
  std::uint64_t epoch_samples() const override { return kind_ == OrderKind::kRandom ? 0 : rows_; }

 private:
  const std::uint64_t rows_;
  const OrderKind kind_;
  const std::uint64_t seed_;
  std::uint64_t epoch_ = 0;
  std::optional<Permutation> permutation_;  // of epoch_
};

}  // namespace evenkeel
