// Budgets that follow memory pressure.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory_pressure.h"
#include "base/mutex.h"
#include "evenkeel/budget.h"

namespace evenkeel {

// The smallest limit of an automatic budget.
inline constexpr std::uint64_t kLeastAutomatic = 16_MiB;

// Computes how automatic budgets change from one look at memory to the next. It reads nothing and
// changes only itself.
class BudgetPolicy {
 public:
  struct Use {
    std::uint64_t limit = 0, in_use = 0, cached = 0;  // of one budget; in_use includes cached
  };
  // The new limits. `triggered`: the kernel reported pressure since the last call.
  std::vector<std::uint64_t> limits(const MemoryState& now, bool triggered, std::int64_t now_ns,
                                    const std::vector<Use>& uses);
  // Call when the counters of the next state cannot be compared with the previous ones.
  void forget() { has_before_ = false; }
  // How much memory is left free for other programs.
  static std::uint64_t kept_free(std::uint64_t total);
  // How long to wait before the next look. Shorter if memory may soon run short, earlier so if
  // there are caches that could be freed.
  int next_look_ms() const;

 private:
  bool pressed(const MemoryState& now, bool triggered, std::int64_t window_ns) const;

  MemoryState before_;
  bool has_before_ = false;
  bool any_cached_ = false;  // whether a budget had caches at the last look
  // Stalls are summed over a time window of several looks.
  std::uint64_t stalled_at_window_ = 0;
  std::int64_t window_began_ns_ = 0;
  std::int64_t no_growth_before_ns_ = 0;
};

// All automatic budgets of the process, and the one thread that watches memory for them. The thread
// runs while there are any and ends at exit. In a child of fork it starts again when a budget is
// used there.
class AutomaticBudgets {
 public:
  static AutomaticBudgets& get();
  void add(const Budget& budget) EXCLUDES(mutex_);
  // Starts the thread if it is not running. Cheap if it is.
  void watch() EXCLUDES(mutex_);

 private:
  struct Watch;
  AutomaticBudgets();
  static void lock_for_fork() NO_THREAD_SAFETY_ANALYSIS;
  static void unlock_after_fork() NO_THREAD_SAFETY_ANALYSIS;
  static void start_child() NO_THREAD_SAFETY_ANALYSIS;
  std::vector<Budget> alive() EXCLUDES(mutex_);
  void look(BudgetPolicy& policy, const MemoryState& now, bool triggered) EXCLUDES(mutex_);
  // Whether the thread must end. If so, clears watch_.
  bool is_over(Watch& watch) EXCLUDES(mutex_);
  void run(Watch& watch) EXCLUDES(mutex_);
  void stop_at_exit() EXCLUDES(mutex_);

  Mutex mutex_;
  std::vector<std::weak_ptr<Reservation::Account>> budgets_ GUARDED_BY(mutex_);
  std::shared_ptr<Watch> watch_ GUARDED_BY(mutex_);  // of the running thread, or nullptr
  std::vector<std::shared_ptr<Watch>> left_behind_;  // of parents of fork; their threads use them
  bool ended_ GUARDED_BY(mutex_) = false;            // the program exits: start no more threads
};

}  // namespace evenkeel
