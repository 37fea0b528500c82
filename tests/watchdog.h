// For tests: aborts the program if a step takes too long, and names the step.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace evenkeel {

class Watchdog {
 public:
  explicit Watchdog(std::chrono::seconds limit = std::chrono::seconds(20))
      : limit_(limit), thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Begins the next step, which has the full time.
  void enter(std::string place) {
    const std::lock_guard lock(mutex_);
    place_ = std::move(place);
    ++number_;
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      const auto number = number_;
      const bool moved = changed_.wait_for(lock, limit_, [&] { return over_; });
      if (moved || number_ != number) continue;
      std::fprintf(stderr, "watchdog: hangs in: %s\n", place_.c_str());
      std::abort();
    }
  }

  const std::chrono::seconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string place_ = "the beginning";
  unsigned long number_ = 0;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace evenkeel
