// A lock of one process: a futex, for there is no C++ runtime here. Whoever waits for it may hold
// the program's own locks (munmap inside an allocator), so whoever holds it calls nothing but the
// kernel.
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
  // In the child of a fork, where nobody is left who could release it.
  void renew() { word_.store(kFree, std::memory_order_relaxed); }

 private:
  enum : std::uint32_t { kFree, kHeld, kAwaited };
  std::atomic<std::uint32_t> word_{kFree};
};

// Holds the lock for a scope, with signals blocked: their handlers may map and unmap, too.
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
