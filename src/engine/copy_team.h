// Threads that help to copy what is in memory already.
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

// Works for one caller at a time. Belongs to the process that made it. Thread-safe.
class CopyTeam {
 public:
  // Starts the threads, or as many as the system allows.
  explicit CopyTeam(std::size_t threads);
  ~CopyTeam();
  CopyTeam(const CopyTeam&) = delete;
  CopyTeam& operator=(const CopyTeam&) = delete;

  // Has the team for a time, unless another caller does.
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

  // What the stack and the bookkeeping of a thread take.
  static constexpr std::size_t kMemoryOfThread = 64 << 10;

 private:
  // What the threads do for the present caller, a few calls of `work` at a time.
  struct Task {
    const std::function<void(std::size_t)>* work = nullptr;
    std::size_t count = 0, at_a_time = 1;
  };
  void run(std::size_t count, std::size_t helpers, const std::function<void(std::size_t)>& work)
      EXCLUDES(mutex_);
  void loop() EXCLUDES(mutex_);
  void take_part(const Task& task);

  std::atomic<bool> in_use_ = false;   // by a caller
  std::atomic<std::size_t> next_ = 0;  // the first that nobody has begun
  Mutex mutex_;
  CondVar wanted_, left_;
  Task task_ GUARDED_BY(mutex_);
  std::size_t places_ GUARDED_BY(mutex_) = 0;  // threads that may still join
  std::size_t inside_ GUARDED_BY(mutex_) = 0;  // threads that take part
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Whether help pays: what a byte costs with and without it, measured on the way. Where the
// processors are busy, threads that help are waited for longer than they save. One thread at a
// time.
class HelpMeter {
 public:
  // For the next piece of work. Now and then it is the other way than the better one.
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
  double with_ = 0, without_ = 0;  // ns a byte, moving means; 0: not known yet
  std::uint32_t asked_ = 0;
};

}  // namespace evenkeel
