// evenkeel._core: binds the C++ library for Python. It is thin: what does not need C++ is written
// in Python.
#include <nanobind/stl/string.h>

#include "evenkeel/metrics.h"
#include "evenkeel/version.h"
#include "src/bind.h"

NB_MODULE(_core, module) {
  module.doc() = "The native part of evenkeel; use the package, not this module.";
  module.def("version", [] { return EVENKEEL_VERSION; });
  module.def("metrics_text", &evenkeel::metrics_text);
  // Readers may exist until the interpreter ends: that is not a leak.
  nanobind::set_leak_warnings(false);
  evenkeel::python::bind_errors();
  evenkeel::python::bind_budget(module);
  evenkeel::python::bind_array(module);
  evenkeel::python::bind_chunks(module);
  evenkeel::python::bind_npy(module);
  evenkeel::python::bind_containers(module);
  evenkeel::python::bind_profile(module);
  evenkeel::python::bind_mixture(module);
  evenkeel::python::bind_tokens(module);
  evenkeel::python::bind_rows(module);
  evenkeel::python::bind_guard(module);
  evenkeel::python::bind_weights(module);
  evenkeel::python::bind_write(module);
  evenkeel::python::bind_prepare(module);
}
