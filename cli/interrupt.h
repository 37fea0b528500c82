// Ctrl-C and its kin, as an exception: so that children end and temporary files go.
#pragma once

namespace evenkeel::cli {

struct Interrupted {
  int signal;
};

// While one lives, SIGINT, SIGTERM and SIGHUP are remembered instead of ending the process. System
// calls that wait return with EINTR.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
};

// Throws Interrupted if a signal has come since the guard was made.
void check_interrupt();

}  // namespace evenkeel::cli
