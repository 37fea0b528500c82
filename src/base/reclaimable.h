// Memory of a cache: it counts in a budget, but is freed when something else needs it.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "evenkeel/budget.h"

namespace evenkeel {

// Holds reclaimable memory and frees it on request of the budget.
class Reclaimer {
 public:
  virtual ~Reclaimer() = default;
  // Frees at least `bytes`, or all it holds, and reports that to ReclaimableMemory::shrink. Called
  // from any thread that needs memory, without locks of the budget.
  virtual void reclaim(std::uint64_t bytes) noexcept = 0;
};

// Counts in the budget like a reservation, but is available to all reservations: if one does not
// fit beside it, the reclaimer must free what is missing. The reclaimer that holds most is called
// first. A child of fork starts without it: there it counts nothing, cannot grow, and its reclaimer
// is not called. Thread-safe.
class ReclaimableMemory {
 public:
  // `what` names it in messages: "cached blocks".
  ReclaimableMemory(const Budget& budget, std::string_view what);
  ~ReclaimableMemory();  // gives back what is left
  ReclaimableMemory(const ReclaimableMemory&) = delete;
  ReclaimableMemory& operator=(const ReclaimableMemory&) = delete;

  // Sets the reclaimer. Without one, try_grow fails.
  void serve(std::weak_ptr<Reclaimer> reclaimer);

  // Reserves `bytes` more. Returns false if the budget has no room beside what is reserved now and
  // beside the peak of the last seconds, so that the cache is not freed each time for short-lived
  // buffers. A cache with less than its share (equal for all caches) takes memory from the largest.
  // The caller must hold no lock that `reclaim` of any cache takes.
  bool try_grow(std::uint64_t bytes);
  void shrink(std::uint64_t bytes);
  std::uint64_t bytes() const;
  // The most it could hold now: its share of what reservations leave.
  std::uint64_t most_bytes() const;

 private:
  const std::shared_ptr<Reservation::Account> account_;
  Reservation::Cache* const cache_;  // in the account
};

}  // namespace evenkeel
