// A lock within one process. It is a futex, because there is no C++ runtime here. A thread that
// waits for it may hold locks of the program (munmap inside an allocator). So the holder must only
// make system calls.
#pragma once

#include "preload/raw_calls.h"

namespace evenkeel::preload {

class Lock {
 public:
  void acquire() {
    std::uint32_t seen = kFree;
    if (word_.compare_exchange_strong(seen, kHeld, std::memory_order_acquire)) return;
    while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
      futex_wait(word_, kAwaited, Among::kThreads);
    }
  }
  void release() {
    if (word_.exchange(kFree, std::memory_order_release) == kAwaited) {
      futex_wake(word_, 1, Among::kThreads);
    }
  }
  // For a child of fork, where the thread that held the lock does not exist.
  void renew() { word_.store(kFree, std::memory_order_relaxed); }

 private:
  enum : std::uint32_t { kFree, kHeld, kAwaited };
  std::atomic<std::uint32_t> word_{kFree};
};

// Holds the lock for a scope, with signals blocked, because their handlers may map and unmap, too.
class Locked {
 public:
  explicit Locked(Lock& lock) : blocked_(kAllSignals), lock_(lock) { lock_.acquire(); }
  ~Locked() { lock_.release(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  BlockedSignals blocked_;
  Lock& lock_;
};

}  // namespace evenkeel::preload
