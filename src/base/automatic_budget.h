// Budgets that follow memory pressure.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory_pressure.h"
#include "base/mutex.h"
#include "evenkeel/budget.h"

namespace evenkeel {

// No automatic budget becomes smaller.
inline constexpr std::uint64_t kLeastAutomatic = 16_MiB;

// How automatic budgets change from one look at memory to the next. Pure arithmetic: nothing is
// read here, and nothing is changed but this object.
class BudgetPolicy {
 public:
  struct Use {
    std::uint64_t limit = 0, in_use = 0, cached = 0;  // of one budget; in_use includes cached
  };
  // The new limits. `triggered`: the kernel reported pressure since the last call.
  std::vector<std::uint64_t> limits(const MemoryState& now, bool triggered, std::int64_t now_ns,
                                    const std::vector<Use>& uses);
  // The counters of the next state cannot be compared with those before.
  void forget() { has_before_ = false; }
  // What is left free for others.
  static std::uint64_t kept_free(std::uint64_t total);
  // How long to wait before the next look: less where memory may soon be short, and where it is not
  // far from it and there is a cache that could give way.
  int next_look_ms() const;

 private:
  bool pressed(const MemoryState& now, bool triggered, std::int64_t window_ns) const;

  MemoryState before_;
  bool has_before_ = false;
  bool any_cached_ = false;  // by a budget, at the last look
  // Waiting for memory adds up over a window of time, of several looks.
  std::uint64_t stalled_at_window_ = 0;
  std::int64_t window_began_ns_ = 0;
  std::int64_t no_growth_before_ns_ = 0;
};

// All automatic budgets of the process, and the one thread that watches memory for them. The thread
// lives while there are any, ends at exit, and is started again in a child of fork when a budget is
// used there.
class AutomaticBudgets {
 public:
  static AutomaticBudgets& get();
  void add(const Budget& budget) EXCLUDES(mutex_);
  // Starts the thread where it does not run. Cheap when it does.
  void watch() EXCLUDES(mutex_);

 private:
  struct Watch;
  AutomaticBudgets();
  static void lock_for_fork() NO_THREAD_SAFETY_ANALYSIS;
  static void unlock_after_fork() NO_THREAD_SAFETY_ANALYSIS;
  static void start_child() NO_THREAD_SAFETY_ANALYSIS;
  std::vector<Budget> alive() EXCLUDES(mutex_);
  void look(BudgetPolicy& policy, const MemoryState& now, bool triggered) EXCLUDES(mutex_);
  // Whether the thread is to end. It then is no longer the one that runs.
  bool is_over(Watch& watch) EXCLUDES(mutex_);
  void run(Watch& watch) EXCLUDES(mutex_);
  void stop_at_exit() EXCLUDES(mutex_);

  Mutex mutex_;
  std::vector<std::weak_ptr<Reservation::Account>> budgets_ GUARDED_BY(mutex_);
  std::shared_ptr<Watch> watch_ GUARDED_BY(mutex_);  // of the thread that runs; else nullptr
  std::vector<std::shared_ptr<Watch>> left_behind_;  // of parents of fork, whose threads use them
  bool ended_ GUARDED_BY(mutex_) = false;  // the program exits: no thread is started any more
};

}  // namespace evenkeel
