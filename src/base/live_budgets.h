// All budgets of this process, for metrics.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/budget.h"

namespace evenkeel {

struct BudgetFigures {
  std::uint64_t number = 0;  // in the order in which they were made, from 1
  bool automatic = false;
  std::uint64_t limit = 0, in_use = 0, cached = 0, peak = 0;
  std::vector<BudgetUse> uses;  // caches included
};

// Of those of which something was ever reserved: the default of an option that was not used is
// none.
struct BudgetSums {
  std::uint64_t count = 0;
  std::uint64_t limit = 0, in_use = 0, cached = 0, peak = 0;
};

// Copies of a budget are one of them. A friend of Reservation, for its accounts.
class LiveBudgets {
 public:
  static std::vector<BudgetFigures> list();
  static BudgetSums sum();
};

}  // namespace evenkeel
