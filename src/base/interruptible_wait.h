// Waiting for another thread in a way that the caller can interrupt.
#pragma once

#include <chrono>
#include <functional>

#include "base/mutex.h"

namespace evenkeel {

// Waits up to 50 ms for a notification. If there was none, calls `while_waiting`, if it is set,
// without the lock. An exception from it ends the wait.
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
