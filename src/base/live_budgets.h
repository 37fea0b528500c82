// All budgets of this process, for metrics.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/budget.h"

namespace evenkeel {

struct BudgetFigures {
  std::uint64_t number = 0;  // in the order of creation, from 1
  bool automatic = false;
  std::uint64_t limit = 0, in_use = 0, cached = 0, peak = 0;
  std::vector<BudgetUse> uses;  // including caches
};

// The sums over budgets that were ever used. An unused default of an option does not count.
struct BudgetSums {
  std::uint64_t count = 0;
  std::uint64_t limit = 0, in_use = 0, cached = 0, peak = 0;
};

// Copies of a budget count as one. A friend of Reservation, to see its accounts.
class LiveBudgets {
 public:
  static std::vector<BudgetFigures> list();
  static BudgetSums sum();
};

}  // namespace evenkeel
