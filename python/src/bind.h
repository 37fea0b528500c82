// The parts of the module: each file binds its own classes.
#pragma once

#include <nanobind/nanobind.h>

namespace evenkeel::python {

void bind_errors();
void bind_budget(nanobind::module_& module);
void bind_array(nanobind::module_& module);
void bind_chunks(nanobind::module_& module);
void bind_npy(nanobind::module_& module);
void bind_containers(nanobind::module_& module);
void bind_profile(nanobind::module_& module);
void bind_mixture(nanobind::module_& module);
void bind_tokens(nanobind::module_& module);
void bind_rows(nanobind::module_& module);
void bind_guard(nanobind::module_& module);
void bind_weights(nanobind::module_& module);
void bind_write(nanobind::module_& module);
void bind_prepare(nanobind::module_& module);

}  // namespace evenkeel::python
