// The order of the rows of one set of arrays: a pure function of (order, position), in O(1) memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/mutex.h"
#include "evenkeel/order.h"
#include "loader/schedule.h"

namespace evenkeel {

// An order that can be replaced while it is in use, which happens when a state is loaded.
// Thread-safe.
class SharedOrder {
 public:
  explicit SharedOrder(const Order& order) : order_(order) {}
  Order get() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return order_;
  }
  void set(const Order& order) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    order_ = order;
  }

 private:
  mutable Mutex mutex_;
  Order order_ GUARDED_BY(mutex_);
};

// The number of rows in an epoch of one set of a mixture. kBlocks leaves out rows that do not make
// a whole turn.
std::uint64_t whole_turns(const Order& order, std::uint64_t rows);

// Position p is in epoch p / rows, at p % rows of that epoch's order; see docs/orders.md. In a
// mixture an epoch has whole turns only. Not thread-safe: it caches the order of the last epoch.
class RowOrder final : public SampleOrder {
 public:
  // Only the kind, the seed and the blocks of `order` are used, not its rank and world.
  RowOrder(std::uint64_t rows, std::shared_ptr<const SharedOrder> order, bool mixed)
      : rows_(rows), order_(std::move(order)), mixed_(mixed) {}

  Place at(std::uint64_t position) override;
  void fill(const Steps::Run& positions, std::span<std::uint64_t> rows) override;
  std::uint64_t epoch_samples() const override {
    return order_->get().kind == OrderKind::kRandom ? 0 : rows_;
  }
  std::uint64_t turn() const override;
  std::uint64_t rows_of_epoch() const { return rows_of_epoch(order_->get()); }

 private:
  const Sequence& sequence(const Order& order);
  std::uint64_t rows_of_epoch(const Order& order) const {
    return mixed_ ? whole_turns(order, rows_) : rows_;
  }

  const std::uint64_t rows_;
  const std::shared_ptr<const SharedOrder> order_;
  const bool mixed_;
  std::optional<Sequence> sequence_;
};

}  // namespace evenkeel
