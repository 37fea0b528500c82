// Releases the interpreter's lock for a scope, and acquires it within that.
#pragma once

#include <nanobind/nanobind.h>

namespace evenkeel::python {

// Releases the GIL for a scope, like nanobind::gil_scoped_release. But before Python 3.14, a daemon
// thread that acquires the GIL while the interpreter is ending is unwound by force, which C++ does
// not survive. Here it waits for the end of the process instead.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  // Throws what Python's signal handlers raised: KeyboardInterrupt.
  void check_signals() const;

  static bool on_main_thread();  // the only one on which Python runs signal handlers
  // Called with the GIL when the interpreter begins to end.
  static void interpreter_ends();
  static bool interpreter_is_ending();

 private:
  PyThreadState* const state_;
};

// Acquires the GIL for a scope, like nanobind::gil_scoped_acquire, and waits like WithoutGil. The
// interpreter's end waits up to a second for threads in such a scope.
class WithGil {
 public:
  WithGil();
  ~WithGil();
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace evenkeel::python
