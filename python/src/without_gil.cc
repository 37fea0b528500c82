#include "src/without_gil.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace evenkeel::python {
namespace {

std::atomic<pid_t> ending = 0;  // the thread that ends the interpreter
std::atomic<int> taking = 0;    // threads that wait for the GIL here

// A child of fork has none of these threads: it would wait for them forever.
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, [] {
  ending = 0;
  taking = 0;
});

// Uses the system call: glibc has gettid since 2.30, and wheels support 2.28.
pid_t this_thread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

}  // namespace

bool WithoutGil::on_main_thread() { return this_thread() == ::getpid(); }
bool WithoutGil::interpreter_is_ending() { return ending != 0; }

WithoutGil::~WithoutGil() {
  ++taking;
  if (ending != 0 && ending != this_thread()) {
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
  ending = this_thread();
  while (taking > 0) {
    PyThreadState* state = PyEval_SaveThread();
    ::usleep(1000);
    PyEval_RestoreThread(state);
  }
}

}  // namespace evenkeel::python
