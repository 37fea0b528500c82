// The background thread that runs all evictors of a process.
#pragma once

#include <chrono>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "guard/thresholds.h"

namespace evenkeel {

class BackgroundTask {
 public:
  virtual ~BackgroundTask() = default;
  // Does some work. Returns the time to wait before the next call.
  virtual Seconds run() noexcept = 0;
};

// The thread starts with the first task and ends with the last. The task that has been due for the
// longest time runs first. The thread blocks all signals. Thread-safe.
class EvictorThread {
 public:
  // A child of fork has its own, without tasks.
  static EvictorThread& of_this_process();

  // Runs the task at once, and again whenever its wait is over. Throws Error (kSystem) if the
  // thread cannot be started. The task must stay alive until remove().
  void add(BackgroundTask& task);
  // After it returns, the task is not running and does not run again. A task must not call it.
  void remove(BackgroundTask& task);
  // Ends the task's wait.
  void wake(BackgroundTask& task);

 private:
  using Clock = std::chrono::steady_clock;
  void run_tasks() noexcept;
  void schedule(BackgroundTask& task, Clock::time_point due) REQUIRES(mutex_);
  void unschedule(BackgroundTask& task) REQUIRES(mutex_);

  Mutex lifecycle_;  // one add or remove at a time; taken before mutex_
  std::thread thread_ GUARDED_BY(lifecycle_);

  Mutex mutex_;
  CondVar changed_;   // queue_ or stopping_
  CondVar finished_;  // running_ became null
  // Both hold the waiting tasks. The running task is in neither.
  std::set<std::pair<Clock::time_point, BackgroundTask*>> queue_ GUARDED_BY(mutex_);
  std::map<BackgroundTask*, Clock::time_point> due_ GUARDED_BY(mutex_);
  BackgroundTask* running_ GUARDED_BY(mutex_) = nullptr;
  bool run_again_ GUARDED_BY(mutex_) = false;  // wake() was called for the running task
  bool removed_ GUARDED_BY(mutex_) = false;    // remove() waits for the running task
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace evenkeel
