#include "evenkeel/guard.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <sys/mman.h>

#include <cerrno>

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

// `promised`: the mapping is removed before it is unmapped and before `fd` is closed.
void add(Guard& guard, std::uintptr_t address, std::size_t length, int fd, std::uint64_t offset,
         bool promised) {
  WithoutGil without;
  guard.add({.address = reinterpret_cast<void*>(address),
             .length = length,
             .fd = fd,
             .file_offset = offset,
             .removed_before_unmap = promised,
             .closed_after_remove = promised});
}

// Maps a file over an anonymous mapping. mmap.mmap can own such a mapping without its own
// descriptor.
void map_over(std::uintptr_t address, std::size_t length, int fd, std::uint64_t offset,
              int protection, bool shared) {
  void* const place = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  // If MAP_FIXED failed, it would leave a hole that another thread might fill and Python might
  // unmap.
  void* const mapped = ::mmap(nullptr, length, protection, shared ? MAP_SHARED : MAP_PRIVATE, fd,
                              static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) throw Error::system("memmap", errno, "the file cannot be mapped");
  if (::mremap(mapped, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, place) == MAP_FAILED) {
    const int error = errno;
    ::munmap(mapped, length);
    // If the kernel has already unmapped the range, reserve it again for Python to unmap.
    ::mmap(place, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    throw Error::system("memmap", error, "the mapping cannot be moved");
  }
}

bool remove(Guard& guard, std::uintptr_t address) {
  WithoutGil without;
  return guard.remove(reinterpret_cast<const void*>(address));
}

nb::dict guard_report(const Guard& guard) {
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
  out["guarded_peak"] = report.guarded_peak;
  out["bytes_released"] = report.bytes_released;
  out["bytes_fetched"] = report.bytes_fetched;
  out["file_bytes"] = report.file_bytes;
  out["switches_to_random"] = report.switches_to_random;
  out["switches_to_readahead"] = report.switches_to_readahead;
  out["cpu_seconds"] = report.cpu_seconds;
  out["failures"] = report.failures;
  return out;
}

}  // namespace

void bind_guard(nb::module_& module) {
  nb::class_<Guard>(module, "Evictor",
                    "Keeps mappings within a budget. The implementation of evenkeel.Guard.")
      .def(
          "__init__",
          [](Guard* self, std::uint64_t budget, bool keep_cache, const std::string& access) {
            new (self)
                Guard({.budget = budget, .keep_cache = keep_cache, .access = access_of(access)});
          },
          "budget"_a, "keep_cache"_a, "access"_a)
      .def("add", &add, "address"_a, "length"_a, "fd"_a, "offset"_a, "promised"_a)
      .def("remove", &remove, "address"_a)
      .def("report", &guard_report, nb::sig("def report(self) -> dict[str, object]"));
  module.def("map_over", &map_over, "address"_a, "length"_a, "fd"_a, "offset"_a, "protection"_a,
             "shared"_a);
  module.attr("MAP_NORESERVE") = static_cast<int>(MAP_NORESERVE);
}

}  // namespace evenkeel::python
