// Working without the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

namespace evenkeel::python {

// Lets go of the GIL for a scope, as nanobind::gil_scoped_release does. But a daemon thread that
// wants it back when the interpreter is ending is unwound by force (before Python 3.14), which C++
// does not survive: here it waits for the end of the process instead.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

  // Throws what Python's signal handlers raised: KeyboardInterrupt.
  void check_signals() const;

  static bool on_main_thread();  // the only one on which Python runs signal handlers
  // When the interpreter begins to end; with the GIL.
  static void interpreter_ends();
  static bool interpreter_is_ending();

 private:
  PyThreadState* const state_;
};

}  // namespace evenkeel::python
