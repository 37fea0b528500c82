// Waiting for another thread, while somebody may want the wait to end.
#pragma once

#include <chrono>
#include <functional>

#include "base/mutex.h"

namespace evenkeel {

// Waits for a change for up to 50 ms. If none came, calls `while_waiting`, if there is one, without
// the lock; what it throws ends the wait.
inline void wait_interruptibly(Mutex& mutex, CondVar& changed,
                               const std::function<void()>& while_waiting) REQUIRES(mutex) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  if (changed.wait_until(mutex, deadline) || !while_waiting) return;
  mutex.unlock();
  try {
    while_waiting();
  } catch (...) {
    mutex.lock();
    throw;
  }
  mutex.lock();
}

}  // namespace evenkeel
