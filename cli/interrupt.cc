#include "cli/interrupt.h"

#include <csignal>
#include <cstddef>

namespace evenkeel::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t caught = 0;
int guards = 0;
struct sigaction handlers_before[3];

void remember(int signal) { caught = signal; }

}  // namespace

InterruptGuard::InterruptGuard() {
  if (guards++ > 0) return;
  caught = 0;
  struct sigaction action = {};
  action.sa_handler = remember;
  for (std::size_t i = 0; i < 3; ++i) {
    ::sigaction(kSignals[i], nullptr, &handlers_before[i]);
    // Signals that were ignored before (nohup) stay ignored.
    if (handlers_before[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  if (--guards > 0) return;
  for (std::size_t i = 0; i < 3; ++i) ::sigaction(kSignals[i], &handlers_before[i], nullptr);
}

void check_interrupt() {
  if (caught != 0) throw Interrupted{caught};
}

}  // namespace evenkeel::cli
