// Turns Ctrl-C and similar signals into an exception, so that children end and temporary files are
// removed.
#pragma once

namespace evenkeel::cli {

struct Interrupted {
  int signal;
};

// While one exists, SIGINT, SIGTERM and SIGHUP are recorded instead of ending the process. Blocking
// system calls return with EINTR.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
};

// Throws Interrupted if a signal has arrived since the guard was created.
void check_interrupt();

}  // namespace evenkeel::cli
