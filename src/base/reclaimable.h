// Memory of a budget that gives way: what a cache holds.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "evenkeel/budget.h"

namespace evenkeel {

// Who holds reclaimable memory, and frees it when the budget asks.
class Reclaimer {
 public:
  virtual ~Reclaimer() = default;
  // Frees at least `bytes`, or all there is, and says so by ReclaimableMemory::shrink. Called from
  // any thread that needs memory, without locks of the budget.
  virtual void reclaim(std::uint64_t bytes) noexcept = 0;
};

// Counts in the budget like a reservation, but is free to everyone else: a reservation that would
// not fit beside it makes the reclaimer free what is missing. Of several, the one that holds most
// frees first. A child of fork starts without it: there nothing is counted, it cannot grow, and the
// reclaimer is not called. Thread-safe.
class ReclaimableMemory {
 public:
  // `what` names it in messages: "cached blocks".
  ReclaimableMemory(const Budget& budget, std::string_view what);
  ~ReclaimableMemory();  // gives back what is left
  ReclaimableMemory(const ReclaimableMemory&) = delete;
  ReclaimableMemory& operator=(const ReclaimableMemory&) = delete;

  // Without a reclaimer it cannot grow.
  void serve(std::weak_ptr<Reclaimer> reclaimer);

  // Reserves `bytes` more. False where the budget has no room: beside what is reserved, and beside
  // what was reserved at the same time within the last seconds, so that buffers that come and go
  // do not find the cache in their way each time. A cache with less than its share (the same for
  // each cache) takes from the largest. Call it without locks that `reclaim` takes, of any cache.
  bool try_grow(std::uint64_t bytes);
  void shrink(std::uint64_t bytes);
  std::uint64_t bytes() const;
  // What it could hold at most, as things are: its share of what others leave.
  std::uint64_t most_bytes() const;

 private:
  const std::shared_ptr<Reservation::Account> account_;
  Reservation::Cache* const cache_;  // in the account
};

}  // namespace evenkeel
