#include "src/without_gil.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace evenkeel::python {
namespace {

std::atomic<bool> ending = false;
std::atomic<int> taking = 0;  // threads that wait for the GIL here

// A child of fork has none of these threads: it would wait for them forever.
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, [] {
  ending = false;
  taking = 0;
});

}  // namespace

// Uses the system call: glibc has gettid since 2.30, and wheels support 2.28.
bool WithoutGil::on_main_thread() { return ::syscall(SYS_gettid) == ::getpid(); }
bool WithoutGil::interpreter_is_ending() { return ending; }

WithoutGil::~WithoutGil() {
  ++taking;
  if (ending && !on_main_thread()) {
    --taking;
    for (;;) ::pause();
  }
  PyEval_RestoreThread(state_);
  --taking;
}

void WithoutGil::check_signals() const {
  if (!on_main_thread()) return;  // handlers run only there
  const nanobind::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// Threads that already wait for the GIL get it while the interpreter still exists.
void WithoutGil::interpreter_ends() {
  ending = true;
  while (taking > 0) {
    PyThreadState* state = PyEval_SaveThread();
    ::usleep(1000);
    PyEval_RestoreThread(state);
  }
}

}  // namespace evenkeel::python
