#include "base/automatic_budget.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "base/fd.h"
#include "base/sys.h"
#include "base/thread.h"

namespace evenkeel {
namespace {

// A look takes about 50 us. Budgets react within a few looks, so that memory is available again 100
// ms after it ran short, even if freeing it takes a while.
constexpr int kLookEveryMs = 20, kLookEveryMsNear = 5;
constexpr std::int64_t kStallWindowNs = 40'000'000;
constexpr std::uint64_t kStallUs = 4'000;  // stalls in a window that count as pressure: a tenth
constexpr std::int64_t kCalmNs = 2'000'000'000;  // without pressure, before a budget grows again
// How often to look up the cgroups again: the process may have been moved.
constexpr std::int64_t kSearchEveryNs = 10'000'000'000;

std::uint64_t less(std::uint64_t from, std::uint64_t what) { return from > what ? from - what : 0; }

}  // namespace

std::uint64_t BudgetPolicy::kept_free(std::uint64_t total) {
  return std::clamp<std::uint64_t>(total / 16, 16_MiB, 1_GiB);
}

int BudgetPolicy::next_look_ms() const {
  const std::uint64_t keep = kept_free(before_.total);
  const bool near = has_before_ && before_.available < (any_cached_ ? 4 : 2) * keep;
  return near ? kLookEveryMsNear : kLookEveryMs;
}

bool BudgetPolicy::pressed(const MemoryState& now, bool triggered, std::int64_t window_ns) const {
  const bool near_limit = now.available < 2 * kept_free(now.total);
  // Tasks of other cgroups may be stalled by their own limits.
  const bool stalls_count = now.stalls_are_own || near_limit;
  if (triggered && stalls_count) return true;
  if (!has_before_) return false;
  // On a busy machine a look may be late and cover more than one window.
  const double windows =
      std::max(static_cast<double>(window_ns) / static_cast<double>(kStallWindowNs), 1.0);
  const auto stalled_us = static_cast<double>(less(now.stalled_us, stalled_at_window_));
  if (stalls_count && stalled_us >= static_cast<double>(kStallUs) * windows) return true;
  // The page cache alone can also reach a limit, but the kernel reclaims it.
  return now.limit_hits > before_.limit_hits && near_limit;
}

std::vector<std::uint64_t> BudgetPolicy::limits(const MemoryState& now, bool triggered,
                                                std::int64_t now_ns, const std::vector<Use>& uses) {
  const std::uint64_t keep = kept_free(now.total);
  const std::int64_t window_ns = now_ns - window_began_ns_;
  const bool pressure = pressed(now, triggered, window_ns);
  const bool is_short = pressure || now.available < keep;
  if (!has_before_ || pressure || window_ns >= kStallWindowNs || window_ns < 0) {
    const std::uint64_t before = has_before_ ? stalled_at_window_ : 0;
    stalled_at_window_ = std::max(now.stalled_us, before);  // 0 if it could not be read
    window_began_ns_ = now_ns;
  }
  before_ = now;
  has_before_ = true;
  any_cached_ = std::ranges::any_of(uses, [](const Use& use) { return use.cached > 0; });
  if (is_short) no_growth_before_ns_ = now_ns + kCalmNs;
  const bool may_grow = now_ns >= no_growth_before_ns_ || no_growth_before_ns_ - now_ns > kCalmNs;

  std::uint64_t all_in_use = 0;
  for (const Use& use : uses) all_in_use += use.in_use;
  const std::uint64_t missing = less(keep, now.available);
  const std::uint64_t free_for_each =
      less(now.available, keep) / std::max<std::size_t>(uses.size(), 1);
  std::vector<std::uint64_t> limits;
  for (const Use& use : uses) {
    std::uint64_t limit = use.limit;
    if (is_short) {
      const double part =
          all_in_use == 0 ? 0 : static_cast<double>(use.in_use) / static_cast<double>(all_in_use);
      const auto share = static_cast<std::uint64_t>(static_cast<double>(missing) * part);
      const std::uint64_t cut = std::max(share, pressure ? use.in_use / 8 : 0);
      limit = std::min(limit, less(use.in_use, cut));
    } else {
      // Never promise more than is free. Grow by at most half of it.
      const std::uint64_t wanted = use.in_use + free_for_each / 2;
      if (wanted > limit && may_grow) limit = std::min(wanted, limit + limit / 4 + 16_MiB);
      limit = std::min(limit, use.in_use + free_for_each);
    }
    limits.push_back(std::max(limit, kLeastAutomatic));
  }
  return limits;
}

// Shared by the thread and the code that stops it.
struct AutomaticBudgets::Watch {
  Fd wake{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  CondVar over;
};

AutomaticBudgets& AutomaticBudgets::get() {
  // Never destroyed: budgets may outlive static objects.
  static AutomaticBudgets* const budgets = new AutomaticBudgets;
  return *budgets;
}

// The mutex is held across fork, so that a child finds the list in a consistent state. The child
// does not touch the parent's Watch: a thread of the parent may have been waiting on it.
AutomaticBudgets::AutomaticBudgets() {
  ::pthread_atfork(&lock_for_fork, &unlock_after_fork, &start_child);
  std::atexit([] { get().stop_at_exit(); });
}

void AutomaticBudgets::lock_for_fork() { get().mutex_.lock(); }
void AutomaticBudgets::unlock_after_fork() { get().mutex_.unlock(); }
void AutomaticBudgets::start_child() {
  get().left_behind_.push_back(std::move(get().watch_));
  get().watch_ = nullptr;
  get().mutex_.unlock();
}

void AutomaticBudgets::add(const Budget& budget) {
  {
    const MutexLock lock(mutex_);
    budgets_.emplace_back(budget.account_);
  }
  watch();
}

void AutomaticBudgets::watch() {
  const MutexLock lock(mutex_);
  if (watch_ || ended_) return;
  auto made = std::make_shared<Watch>();
  try {
    start_thread([this, made] { run(*made); }).detach();
    watch_ = std::move(made);
  } catch (const std::system_error&) {
    // No thread could be started. The limit stays, and the next use of the budget tries again.
  }
}

std::vector<Budget> AutomaticBudgets::alive() {
  const MutexLock lock(mutex_);
  std::vector<Budget> budgets;
  for (const auto& one : budgets_) {
    if (auto account = one.lock()) budgets.push_back(Budget(std::move(account)));
  }
  return budgets;
}

// Holds the mutex only in alive(): a budget may be destroyed here, and caches may be freed.
void AutomaticBudgets::look(BudgetPolicy& policy, const MemoryState& now, bool triggered) {
  const std::vector<Budget> budgets = alive();
  std::vector<BudgetPolicy::Use> uses;
  uses.reserve(budgets.size());
  for (const Budget& budget : budgets) {
    uses.push_back({budget.limit(), budget.in_use(), budget.cached()});
  }
  const auto limits = policy.limits(now, triggered, sys::monotonic_ns(), uses);
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    if (limits[i] != uses[i].limit) budgets[i].follow(limits[i]);
  }
}

bool AutomaticBudgets::is_over(Watch& watch) {
  const MutexLock lock(mutex_);
  std::erase_if(budgets_, [](const auto& one) { return one.expired(); });
  if (!ended_ && !budgets_.empty()) return false;
  watch_ = nullptr;
  watch.over.notify_all();
  return true;
}

void AutomaticBudgets::run(Watch& watch) {
  BudgetPolicy policy;
  std::optional<MemoryPressure> memory;
  std::vector<Fd> triggers;
  std::int64_t searched_ns = 0;
  while (!is_over(watch)) {
    try {
      const std::int64_t now_ns = sys::monotonic_ns();
      if (!memory || now_ns - searched_ns >= kSearchEveryNs || now_ns < searched_ns) {
        searched_ns = now_ns;
        memory.emplace();
        policy.forget();  // the counters come from other files now
        triggers = memory->open_triggers();
      }
      std::vector<pollfd> polled = {{watch.wake.get(), POLLIN, 0}};
      for (const Fd& trigger : triggers) polled.push_back({trigger.get(), POLLPRI, 0});
      ::poll(polled.data(), polled.size(), policy.next_look_ms());
      bool triggered = false;
      for (std::size_t i = 1; i < polled.size(); ++i) {
        if ((polled[i].revents & POLLERR) != 0) {
          triggers[i - 1].reset();  // its cgroup is gone
        } else if ((polled[i].revents & POLLPRI) != 0) {
          triggered = true;
        }
      }
      std::erase_if(triggers, [](const Fd& trigger) { return !trigger; });
      look(policy, memory->read(), triggered);
    } catch (const std::exception&) {  // no memory or no descriptor; the next look may succeed
      memory.reset();
      triggers.clear();
      pollfd stop = {watch.wake.get(), POLLIN, 0};
      ::poll(&stop, 1, kLookEveryMs);
    }
  }
}

// Waits at most a second: a thread that waits for the kernel must not keep the program from
// exiting.
void AutomaticBudgets::stop_at_exit() {
  const MutexLock lock(mutex_);
  ended_ = true;
  const std::shared_ptr<Watch> stopped = watch_;
  if (!stopped) return;
  const std::uint64_t one = 1;
  if (::write(stopped->wake.get(), &one, sizeof one) < 0) return;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (watch_ == stopped && stopped->over.wait_until(mutex_, deadline)) {
  }
}

}  // namespace evenkeel
