#include "evenkeel/guard.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "src/bind.h"
#include "src/without_gil.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

GuardAccess access_of(const std::string& name) {
  if (name == "auto") return GuardAccess::kAuto;
  if (name == "random") return GuardAccess::kRandom;
  if (name == "sequential") return GuardAccess::kSequential;
  if (name == "leave") return GuardAccess::kLeave;
  throw Error(ErrorKind::kInvalid, "guard",
              "there is no access \"" + name + "\": auto, random, sequential or leave");
}

void add(Guard& guard, std::uintptr_t address, std::size_t length, int fd, std::uint64_t offset,
         bool removed_before_unmap) {
  WithoutGil without;
  guard.add({.address = reinterpret_cast<void*>(address),
             .length = length,
             .fd = fd,
             .file_offset = offset,
             .removed_before_unmap = removed_before_unmap});
}

bool remove(Guard& guard, std::uintptr_t address) {
  WithoutGil without;
  return guard.remove(reinterpret_cast<const void*>(address));
}

nb::dict report_of(const Guard& guard) {
  GuardReport report;
  {
    WithoutGil without;
    report = guard.report();
  }
  nb::dict out;
  out["budget"] = report.budget;
  out["mappings"] = report.mappings;
  out["cached"] = report.cached;
  out["peak_cached"] = report.peak_cached;
  out["bytes_released"] = report.bytes_released;
  out["switches_to_random"] = report.switches_to_random;
  out["switches_to_readahead"] = report.switches_to_readahead;
  out["cpu_seconds"] = report.cpu_seconds;
  out["failures"] = report.failures;
  return out;
}

}  // namespace

void bind_guard(nb::module_& module) {
  nb::class_<Guard>(module, "Evictor",
                    "Keeps mappings under a line; evenkeel.Guard is made of it.")
      .def(
          "__init__",
          [](Guard* self, std::uint64_t budget, bool keep_cache, const std::string& access) {
            new (self)
                Guard({.budget = budget, .keep_cache = keep_cache, .access = access_of(access)});
          },
          "budget"_a, "keep_cache"_a, "access"_a)
      .def("add", &add, "address"_a, "length"_a, "fd"_a, "offset"_a, "removed_before_unmap"_a)
      .def("remove", &remove, "address"_a)
      .def("report", &report_of, nb::sig("def report(self) -> dict[str, object]"));
}

}  // namespace evenkeel::python
