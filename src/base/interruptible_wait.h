// Waiting for another thread in a way that the caller can interrupt.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include "base/mutex.h"
#include "base/per_process.h"
#include "evenkeel/error.h"

namespace evenkeel {

// Waits up to 50 ms for a notification. If there was none, calls `while_waiting`, if it is set,
// without the lock. An exception from it ends the wait. If it forks, the other thread exists only
// in the parent: the wait of the child ends with an Error (kClosed).
inline void wait_interruptibly(Mutex& mutex, CondVar& changed,
                               const std::function<void()>& while_waiting)
    REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  if (changed.wait_until(mutex, deadline) || !while_waiting) return;
  const std::uint64_t generation = ForkGeneration::now();
  // A thread of the parent may have locked it at the fork. Nobody unlocks it in a child.
  const auto lock = [&]() NO_THREAD_SAFETY_ANALYSIS {
    if (generation != ForkGeneration::now()) return static_cast<void>(mutex.try_lock());
    mutex.lock();
  };
  mutex.unlock();
  try {
    while_waiting();
  } catch (...) {
    lock();
    throw;
  }
  lock();
  if (generation == ForkGeneration::now()) return;
  throw Error(ErrorKind::kClosed, "write", "this process is a child of the writing process");
}

}  // namespace evenkeel
