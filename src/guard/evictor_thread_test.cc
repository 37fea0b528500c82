// labels: threads
#include "guard/evictor_thread.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/mutex.h"

namespace evenkeel {
namespace {

// Counts its runs and returns a fixed wait.
class Counter : public BackgroundTask {
 public:
  explicit Counter(Seconds wait) : wait_(wait) {}
  Seconds run() noexcept override {
    MutexLock lock(mutex_);
    ++runs_;
    changed_.notify_all();
    while (blocked_) changed_.wait(mutex_);
    return wait_;
  }
  void block(bool blocked) {
    MutexLock lock(mutex_);
    blocked_ = blocked;
    changed_.notify_all();
  }
  int runs() {
    MutexLock lock(mutex_);
    return runs_;
  }
  // Returns false after a minute.
  bool reaches(int runs) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    MutexLock lock(mutex_);
    while (runs_ < runs) {
      if (!changed_.wait_until(mutex_, end)) return false;
    }
    return true;
  }

 private:
  const Seconds wait_;
  Mutex mutex_;
  CondVar changed_;
  int runs_ GUARDED_BY(mutex_) = 0;
  bool blocked_ GUARDED_BY(mutex_) = false;
};

constexpr Seconds kForEver{3600}, kAtOnce{0};

TEST(EvictorThread, RunsATaskAtOnceAndAgainWhenItsWaitIsOver) {
  EvictorThread thread;
  Counter busy(kAtOnce), idle(kForEver);
  thread.add(busy);
  thread.add(idle);
  EXPECT_TRUE(idle.reaches(1));
  EXPECT_TRUE(busy.reaches(100));
  EXPECT_EQ(idle.runs(), 1);
  thread.remove(busy);
  thread.remove(idle);
}

TEST(EvictorThread, ATaskThatIsAlwaysDueDoesNotKeepOthersFromRunning) {
  EvictorThread thread;
  Counter one(kAtOnce), two(kAtOnce);
  thread.add(one);
  thread.add(two);
  EXPECT_TRUE(one.reaches(50));
  EXPECT_TRUE(two.reaches(50));
  thread.remove(one);
  thread.remove(two);
}

TEST(EvictorThread, WakeEndsTheWaitOfATaskAlsoWhileItRuns) {
  EvictorThread thread;
  Counter task(kForEver);
  thread.add(task);
  EXPECT_TRUE(task.reaches(1));
  thread.wake(task);
  EXPECT_TRUE(task.reaches(2));
  task.block(true);
  thread.wake(task);
  EXPECT_TRUE(task.reaches(3));
  thread.wake(task);  // while it runs
  task.block(false);
  EXPECT_TRUE(task.reaches(4));
  thread.remove(task);
}

TEST(EvictorThread, ARemovedTaskDoesNotRunAgain) {
  EvictorThread thread;
  Counter other(kAtOnce);
  thread.add(other);
  for (int round = 0; round < 20; ++round) {
    auto task = std::make_unique<Counter>(kAtOnce);
    thread.add(*task);
    EXPECT_TRUE(task->reaches(2));
    thread.remove(*task);
    task.reset();
    EXPECT_TRUE(other.reaches(other.runs() + 2));
  }
  thread.remove(other);
}

}  // namespace
}  // namespace evenkeel
