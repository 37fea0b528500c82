// How long to go on with a call that the system puts off.
#pragma once

#include <cerrno>
#include <chrono>
#include <thread>

namespace evenkeel {

// EINTR and EAGAIN ask for another try. Files hardly ever say EAGAIN, but a filesystem in user
// space may say it for good: after about a second it is an error like others.
class RetryPolicy {
 public:
  // Whether to try again after `code`, at once or after a moment.
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
