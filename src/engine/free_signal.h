// Waiting for any one of several things that are held by others.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/mutex.h"

namespace evenkeel {

// For things with a mutex each, of which a thread needs one, no matter which. Waiting for the mutex
// of one would miss that another becomes free. Thread-safe.
class FreeSignal {
 public:
  // What `take_free` returns, once that is not nullptr. It locks one that is free, without waiting.
  template <class TakeFree>
  auto wait(const TakeFree& take_free) EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    waiting_.fetch_add(1);
    auto taken = take_free();
    for (; !taken; taken = take_free()) freed_.wait(mutex_);
    waiting_.fetch_sub(1);
    return taken;
  }
  // After each unlock. Both sides change the same number: either this one sees that a thread waits,
  // or that thread sees that something is free.
  void notify() EXCLUDES(mutex_) {
    if (waiting_.fetch_add(0) == 0) return;
    { const MutexLock lock(mutex_); }  // who has just looked in vain waits by now
    freed_.notify_one();
  }
  std::size_t waiting() const { return waiting_; }

 private:
  Mutex mutex_;
  CondVar freed_;
  std::atomic<std::size_t> waiting_ = 0;
};

}  // namespace evenkeel
