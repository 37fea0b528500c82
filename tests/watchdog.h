// For tests: ends the program, naming the place, when something hangs.
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
  explicit Watchdog(std::chrono::seconds patience = std::chrono::seconds(20))
      : patience_(patience), thread_([this] { watch(); }) {}
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

  // The next thing to be done; it has all the time again.
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
      const bool moved = changed_.wait_for(lock, patience_, [&] { return over_; });
      if (moved || number_ != number) continue;
      std::fprintf(stderr, "watchdog: hangs in: %s\n", place_.c_str());
      std::abort();
    }
  }

  const std::chrono::seconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string place_ = "the beginning";
  unsigned long number_ = 0;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace evenkeel
