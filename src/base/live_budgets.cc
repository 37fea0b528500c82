#include "base/live_budgets.h"

#include <algorithm>

#include "base/account.h"

namespace evenkeel {

std::vector<BudgetFigures> LiveBudgets::list() {
  Reservation::Account::Registry& all = Reservation::Account::Registry::get();
  std::vector<BudgetFigures> list;
  {
    const MutexLock lock(all.mutex);
    for (const Reservation::Account* one : all.accounts) {
      list.push_back({one->number, one->automatic, one->limit, one->in_use, one->cached, one->peak,
                      one->uses(true)});
    }
  }
  std::ranges::sort(list, {}, &BudgetFigures::number);
  return list;
}

BudgetSums LiveBudgets::sum() {
  Reservation::Account::Registry& all = Reservation::Account::Registry::get();
  const MutexLock lock(all.mutex);
  BudgetSums sum;
  for (const Reservation::Account* one : all.accounts) {
    if (one->peak == 0) continue;
    ++sum.count;
    sum.limit += one->limit;
    sum.in_use += one->in_use;
    sum.cached += one->cached;
    sum.peak += one->peak;
  }
  return sum;
}

}  // namespace evenkeel
