// Mixtures whose weights change, and sets that end.
#include "evenkeel/mixture.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "src/bind.h"

namespace evenkeel::python {

namespace nb = nanobind;

void bind_mixture(nb::module_& module) {
  using Options = MixtureOptions;
  using Stages = std::vector<std::pair<std::uint64_t, std::vector<double>>>;
  nb::class_<Options>(module, "MixtureOptions", "How a mixture changes over time.")
      .def(nb::init<>())
      .def_prop_rw(
          "stages",
          [](const Options& options) {
            Stages stages;
            for (const auto& [step, weights] : options.stages) stages.emplace_back(step, weights);
            return stages;
          },
          [](Options& options, const Stages& stages) {
            options.stages.clear();
            for (const auto& [step, weights] : stages) options.stages.push_back({step, weights});
          },
          "The first step and the weights of each stage.")
      .def_rw("max_epochs", &Options::max_epochs, "The limit of each set; 0: no limit.")
      .def_prop_rw(
          "exhausted", [](const Options& options) { return exhausted_name(options.exhausted); },
          [](Options& options, const std::string& name) {
            options.exhausted = parse_exhausted(name);
          },
          "stop, drop or repeat.");
}

}  // namespace evenkeel::python
