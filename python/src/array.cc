#include "evenkeel/array.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "array/internal.h"
#include "evenkeel/meter.h"
#include "format/layout.h"
#include "remote/object.h"
#include "src/bind.h"
#include "src/interruptible.h"
#include "src/paths.h"
#include "src/reader.h"
#include "src/stats.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

std::unique_ptr<Reader> open(const std::vector<nb::bytes>& paths, const Budget& budget,
                             const std::string& engine, const std::optional<std::string>& dtype,
                             const std::vector<std::int64_t>& shape, std::uint64_t offset,
                             std::optional<std::uint64_t> cache, const std::string& page_cache,
                             const std::string& disk_cache, const std::string& name) {
  ArrayOptions options{.budget = budget,
                       .engine = parse_engine(engine),
                       .page_cache = parse_page_cache(page_cache),
                       .cache = cache,
                       .disk_cache = disk_cache};
  if (dtype) options.dtype = DType::parse(*dtype);
  options.shape = shape;
  options.offset = offset;
  options.name = name;
  const std::vector<std::string> names = paths_of(paths);
  return std::make_unique<Reader>(names.front(),
                                  [names, options] { return Array::open(names, options); });
}

std::optional<std::uint64_t> cached_bytes(const nb::bytes& path) {
  const auto cache = interruptible([name = path_of(path)] { return file_cache(name); });
  return cache ? std::optional(cache->cached) : std::nullopt;
}

nb::tuple shape_of(const Reader& reader) {
  nb::list lengths;
  for (const std::uint64_t length : reader.array()->shape()) lengths.append(length);
  return nb::tuple(lengths);
}

nb::tuple engine_of(const Reader& reader) {
  const EngineReport report = reader.engine();
  return nb::make_tuple(std::string(engine_name(report.chosen)), report.how, report.why);
}

std::uint64_t lists_of(const Reader& reader) {
  const auto array = reader.array();
  return Internals::of(*array).layout.lists();
}

// Identifies the versions of objects on servers; empty for files.
std::vector<std::string> versions_of(const Reader& reader) {
  const auto array = reader.array();
  std::vector<std::string> versions;
  for (const Segment& segment : Internals::of(*array).layout.segments) {
    if (segment.remote) versions.push_back(segment.remote->version());
  }
  return versions;
}

// Where the two offsets of a list are, and what they count from.
std::pair<std::uint64_t, std::uint64_t> list_place(const Reader& reader, std::uint64_t list) {
  const auto array = reader.array();
  const auto& batches = Internals::of(*array).layout.offset_batches;
  if (batches.empty()) return {list, 0};
  const OffsetBatch& batch =
      *std::prev(std::ranges::upper_bound(batches, list, {}, &OffsetBatch::first_list));
  return {batch.first_offset + list - batch.first_list, batch.first_value};
}

}  // namespace

void bind_array(nb::module_& module) {
  nb::class_<Reader>(module, "Reader",
                     "Reads rows of files as bytes. The implementation of evenkeel.Array.")
      .def_prop_ro("shape", &shape_of, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("dtype", [](const Reader& reader) { return reader.array()->dtype().name(); })
      .def_prop_ro("format", [](const Reader& reader) { return reader.array()->format(); })
      .def_prop_ro("paths", [](const Reader& reader) { return bytes_of(reader.array()->paths()); })
      .def_prop_ro("budget", [](const Reader& reader) { return reader.array()->budget(); })
      .def_prop_ro("engine", &engine_of, nb::sig("def engine(self) -> tuple[str, str, str]"),
                   "The engine in use, how it reads, and why it was chosen.")
      .def_prop_ro("closed", &Reader::closed)
      .def_prop_ro("lists", &lists_of, "The number of lists, for an array of offsets.")
      .def_prop_ro("versions", &versions_of,
                   "The ETags of objects on servers, or the closest equivalent.")
      .def("list_place", &list_place, "list"_a,
           "Where the two offsets of a list are, and what they count from.")
      .def("room_for", &Reader::room_for_read, "bytes"_a, "what"_a,
           "A reservation for the result of one read. Waits for other reads; MemoryError if it "
           "cannot fit.")
      .def("row", &Reader::row, "index"_a, "shape"_a, "dtype"_a,
           "One row as an ndarray; a scalar if `shape` is ().",
           nb::sig("def row(self, index: int, shape: tuple[int, ...], dtype: object) -> object"))
      .def("read", &Reader::read, "first"_a, "count"_a, "out"_a)
      .def("gather", &Reader::gather, "rows"_a, "out"_a)
      .def(
          "stats",
          [](const Reader& reader) {
            return dict_of(interruptible([array = reader.array()] { return array->stats(); }));
          },
          nb::sig("def stats(self) -> dict[str, int]"))
      .def("close", &Reader::close);
  module.def("open", &open, "paths"_a, "budget"_a, "engine"_a, "dtype"_a.none(), "shape"_a,
             "offset"_a, "cache"_a.none(), "page_cache"_a, "disk_cache"_a, "name"_a = "");
  module.def(
      "expand_paths",
      [](const nb::bytes& path_or_glob) {
        return bytes_of(
            interruptible([pattern = path_of(path_or_glob)] { return expand_paths(pattern); }));
      },
      "path_or_glob"_a, "The files that a pattern names, sorted.");
  module.def("cached_bytes", &cached_bytes, "path"_a,
             "Bytes of a file in the page cache; None if the kernel does not report it.");
}

}  // namespace evenkeel::python
