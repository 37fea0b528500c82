// Blocks signals in the library's threads, because signals are for the program's threads.
#pragma once

#include <pthread.h>

#include <csignal>

namespace evenkeel {

// Threads that are started while an object of this class exists begin with all signals blocked.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace evenkeel
