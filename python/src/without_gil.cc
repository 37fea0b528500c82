#include "src/without_gil.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

namespace evenkeel::python {
namespace {

std::atomic<pid_t> ending = 0;  // the thread that ends the interpreter
std::atomic<int> taking = 0;    // threads that wait for the GIL here
std::atomic<int> inside = 0;    // threads in a WithGil, which count once for each they are in
thread_local int inside_here = 0;

// A child of fork has none of these threads but the one that forked, perhaps in a WithGil.
[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, [] {
  ending = 0;
  taking = 0;
  inside = inside_here;
});

// Uses the system call: glibc has gettid since 2.30, and wheels support 2.28.
pid_t this_thread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

// Calls `acquire`, or waits for the end of the process if the GIL is no longer to be had.
template <class Acquire>
void acquire_gil(Acquire acquire) {
  ++taking;
  if (ending != 0 && ending != this_thread()) {
    --taking;
    for (;;) ::pause();
  }
  acquire();
  --taking;
}

}  // namespace

bool WithoutGil::on_main_thread() { return this_thread() == ::getpid(); }
bool WithoutGil::interpreter_is_ending() { return ending != 0; }

WithoutGil::~WithoutGil() {
  acquire_gil([this] { PyEval_RestoreThread(state_); });
}

void WithoutGil::check_signals() const {
  if (!on_main_thread()) return;  // handlers run only there
  const WithGil gil;
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

WithGil::WithGil() {
  acquire_gil([this] {
    state_ = PyGILState_Ensure();
    ++inside;
    ++inside_here;
  });
}

WithGil::~WithGil() {
  --inside;
  --inside_here;
  PyGILState_Release(state_);
}

// Threads that already wait for the GIL get it while the interpreter still exists.
void WithoutGil::interpreter_ends() {
  ending = this_thread();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (taking > 0 || (inside > 0 && std::chrono::steady_clock::now() < deadline)) {
    PyThreadState* state = PyEval_SaveThread();
    ::usleep(1000);
    PyEval_RestoreThread(state);
  }
}

}  // namespace evenkeel::python
