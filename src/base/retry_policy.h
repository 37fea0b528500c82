// How often to retry a system call.
#pragma once

#include <cerrno>
#include <chrono>
#include <thread>

namespace evenkeel {

// EINTR, EAGAIN and EBUSY are retried. Files hardly ever return EAGAIN, but a filesystem in user
// space may return it forever, so after about a second it is an error.
class RetryPolicy {
 public:
  // Whether to try again after `code`. May sleep for a millisecond.
  bool try_again(int code) {
    if (code == EINTR) return true;
    if (code != EAGAIN && code != EBUSY) return false;
    if (++tries_ > kMostTries) return false;
    if (tries_ > kAtOnce) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  }
  // The call made progress: count tries from 0 again.
  void moved() { tries_ = 0; }

 private:
  static constexpr int kAtOnce = 16, kMostTries = 1000;
  int tries_ = 0;
};

}  // namespace evenkeel
