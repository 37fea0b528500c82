// Waits until any one of several locked things becomes free.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/mutex.h"

namespace evenkeel {

// For several things with a mutex each, when a thread needs any one of them. Waiting for the mutex
// of one would miss that another becomes free. Thread-safe.
class FreeSignal {
 public:
  // Calls `take_free` until it returns something other than nullptr, and returns that. `take_free`
  // locks one that is free, without waiting.
  template <class TakeFree>
  auto wait(const TakeFree& take_free) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    waiting_.fetch_add(1);
    auto taken = take_free();
    for (; !taken; taken = take_free()) freed_.wait(mutex_);
    waiting_.fetch_sub(1);
    return taken;
  }
  // Must be called after each unlock. Both sides modify `waiting_`: either this thread sees that
  // another is waiting, or that thread sees that something is free.
  void notify() EXCLUDES(mutex_) {
    if (waiting_.fetch_add(0) == 0) return;
    // A thread that found nothing free holds the mutex until it waits.
    { const MutexLock lock(mutex_); }
    freed_.notify_one();
  }
  std::size_t waiting() const { return waiting_; }

 private:
  Mutex mutex_;
  CondVar freed_;
  std::atomic<std::size_t> waiting_ = 0;
};

}  // namespace evenkeel
