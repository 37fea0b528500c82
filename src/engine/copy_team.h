// Threads that help to copy bytes that are already in memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace evenkeel {

// Works for one caller at a time. Thread-safe, within the process that created it.
class CopyTeam {
 public:
  // Starts as many of the threads as the system allows.
  explicit CopyTeam(std::size_t threads);
  ~CopyTeam();
  CopyTeam(const CopyTeam&) = delete;
  CopyTeam& operator=(const CopyTeam&) = delete;

  // Takes the team for its lifetime, unless another caller has it.
  class Use {
   public:
    explicit Use(CopyTeam& team)
        : team_(team.in_use_.load(std::memory_order_relaxed) ||
                        team.in_use_.exchange(true, std::memory_order_acquire)
                    ? nullptr
                    : &team) {}
    ~Use() {
      if (team_) team_->in_use_.store(false, std::memory_order_release);
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    explicit operator bool() const { return team_ != nullptr; }
    // Calls work(i) once for each i below `count`, on this thread and on up to `helpers` others,
    // and returns when all are done. `work` must not throw.
    void run(std::size_t count, std::size_t helpers,
             const std::function<void(std::size_t)>& work) const {
      team_->run(count, helpers, work);
    }

   private:
    CopyTeam* const team_;
  };

  // For the stack and the bookkeeping of a thread.
  static constexpr std::size_t kMemoryOfThread = 64 << 10;

 private:
  // The work of the current caller. A thread takes `at_a_time` calls of `work` at once.
  struct Task {
    const std::function<void(std::size_t)>* work = nullptr;
    std::size_t count = 0, at_a_time = 1;
  };
  void run(std::size_t count, std::size_t helpers, const std::function<void(std::size_t)>& work)
      EXCLUDES(mutex_);
  void loop() EXCLUDES(mutex_);
  void take_part(const Task& task);

  std::atomic<bool> in_use_ = false;   // by a caller
  std::atomic<std::size_t> next_ = 0;  // the first i that no thread has taken
  Mutex mutex_;
  CondVar wanted_, left_;
  Task task_ GUARDED_BY(mutex_);
  std::size_t places_ GUARDED_BY(mutex_) = 0;  // threads that may still join
  std::size_t inside_ GUARDED_BY(mutex_) = 0;  // threads that take part
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Measures whether help from other threads pays: the time per byte with and without it. On a busy
// machine, waiting for the helpers takes longer than they save. Not thread-safe.
class HelpMeter {
 public:
  // Whether to use help for the next piece of work. Now and then it tries the slower way again.
  bool use_help() {
    if (with_ == 0 || without_ == 0) return with_ == 0;
    return (++asked_ % kTryOneIn == 0) != (with_ < without_);
  }
  void note(bool with_help, std::int64_t ns, std::uint64_t bytes) {
    if (bytes == 0) return;
    double& mean = with_help ? with_ : without_;
    const double now = std::max(static_cast<double>(ns) / static_cast<double>(bytes), 1e-9);
    mean = mean == 0 ? now : mean + (now - mean) / 8;
  }

 private:
  static constexpr std::uint32_t kTryOneIn = 32;
  double with_ = 0, without_ = 0;  // moving averages in ns per byte; 0: not known yet
  std::uint32_t asked_ = 0;
};

}  // namespace evenkeel
