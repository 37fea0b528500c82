// A mutex and a condition variable that clang's -Wthread-safety understands. GUARDED_BY names the
// mutex of a member, and REQUIRES the mutex that a caller must hold. Builds with clang treat
// violations as errors. Other compilers ignore the annotations.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define EVENKEEL_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define EVENKEEL_THREAD_ANNOTATION(x)
#endif

#define CAPABILITY(x) EVENKEEL_THREAD_ANNOTATION(capability(x))
#define SCOPED_CAPABILITY EVENKEEL_THREAD_ANNOTATION(scoped_lockable)
#define GUARDED_BY(x) EVENKEEL_THREAD_ANNOTATION(guarded_by(x))
#define PT_GUARDED_BY(x) EVENKEEL_THREAD_ANNOTATION(pt_guarded_by(x))
#define ACQUIRED_BEFORE(...) EVENKEEL_THREAD_ANNOTATION(acquired_before(__VA_ARGS__))
#define REQUIRES(...) EVENKEEL_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) EVENKEEL_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) EVENKEEL_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) EVENKEEL_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) EVENKEEL_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define ASSERT_CAPABILITY(x) EVENKEEL_THREAD_ANNOTATION(assert_capability(x))
#define NO_THREAD_SAFETY_ANALYSIS EVENKEEL_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace evenkeel {

class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  // Tells the compiler what it cannot see: a caller further up the stack has locked the mutex.
  void assert_held() const ASSERT_CAPABILITY(this) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex for a scope. It can be unlocked and locked again in between.
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() RELEASE() {
    held_ = false;
    mutex_.unlock();
  }
  void lock() ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// Wakeups may be spurious: wait in a loop that checks the condition. (A predicate in a lambda would
// hide from the compiler that the mutex is held.)
class CondVar {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    ready_.wait(lock);
    lock.release();
  }
  // Returns false after the deadline.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline) REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = ready_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void notify_one() { ready_.notify_one(); }
  void notify_all() { ready_.notify_all(); }

 private:
  std::condition_variable ready_;
};

}  // namespace evenkeel
