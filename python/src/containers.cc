// Files that hold several arrays, for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string_view>

#include "array/internal.h"
#include "engine/codecs.h"
#include "format/chunk_grid.h"
#include "format/container.h"
#include "format/npy.h"
#include "format/places.h"
#include "src/bind.h"
#include "src/interruptible.h"
#include "src/paths.h"
#include "src/reader.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

using Places = nb::ndarray<const std::uint64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

// HDF5 may begin after a user block, whose length is a power of two: MATLAB's has 512 bytes.
bool is_hdf5(std::string_view head) {
  if (is_npy(head)) return false;  // its data may be anything
  for (std::size_t at = 0; at < head.size(); at = std::max<std::size_t>(512, 2 * at)) {
    if (head.substr(at).starts_with("\x89HDF\r\n\x1a\n")) return true;
  }
  return false;
}

// The kind of a file by its first bytes: a container's kind, "hdf5", or "" for anything else.
std::string kind_of(const nb::bytes& path) {
  return interruptible([name = path_of(path)] {
    const Source source = open_even_empty(name);
    const std::string head = source.read(0, kHeadBytes);
    const std::string_view kind = container_kind(head);
    return std::string(kind.empty() && is_hdf5(head) ? "hdf5" : kind);
  });
}

// None for a file that is not a container.
nb::object members(const nb::bytes& path, bool count_rows) {
  using Found = std::optional<std::vector<Member>>;
  const Found found = interruptible([name = path_of(path), count_rows]() -> Found {
    const std::vector<std::string> files = dataset_files(name);
    const Source source = open_source(files.empty() ? name : files.front());
    const std::string head = source.read(0, kHeadBytes);
    if (!is_container(head)) return std::nullopt;
    return members_of(source, head, count_rows);
  });
  if (!found) return nb::none();
  nb::list all;
  for (const Member& member : *found) {
    nb::list shape;
    for (const std::uint64_t length : member.shape) shape.append(length);
    // Names need not be text.
    const nb::object name = nb::steal(PyUnicode_DecodeUTF8(
        member.name.data(), static_cast<Py_ssize_t>(member.name.size()), "backslashreplace"));
    all.append(nb::make_tuple(name, member.type, nb::tuple(shape), member.list, member.refused));
  }
  return all;
}

// Rows at places in files: (file, offset, rows) each.
std::unique_ptr<Reader> open_places(const std::string& format, const std::vector<nb::bytes>& paths,
                                    const Places& places, const std::string& dtype, bool big_endian,
                                    const std::vector<std::uint64_t>& shape, const Budget& budget,
                                    const std::string& engine, std::optional<std::uint64_t> cache,
                                    const std::string& page_cache) {
  const ArrayOptions options{.budget = budget,
                             .engine = parse_engine(engine),
                             .page_cache = parse_page_cache(page_cache),
                             .cache = cache};
  std::vector<RowPlace> list(places.shape(0));
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i] = {places(i, 0), places(i, 1), places(i, 2)};
  }
  const std::vector<std::string> files = paths_of(paths);
  if (files.empty()) throw Error(ErrorKind::kInvalid, "open", "no file was named");
  return std::make_unique<Reader>(files.front(), [=, list = std::move(list),
                                                  type = DType::parse(dtype)] {
    return Internals::make(layout_of_places(format, files, list, type, big_endian, shape), options);
  });
}

Compression parse_compression(const std::string& name) {
  if (name == "zstd") return Compression::kZstd;
  if (name == "blosc") return Compression::kBlosc;
  if (name == "zlib") return Compression::kZlib;
  if (name.empty()) return Compression::kNone;
  throw Error(ErrorKind::kInvalid, "open", "chunks compressed with \"" + name + "\"");
}

// Rows in chunks that must be decoded; `grid` has the fields of ChunkGrid.
std::unique_ptr<Reader> open_chunks(const std::string& format, const nb::dict& grid,
                                    const std::string& dtype, bool big_endian, const Budget& budget,
                                    const std::string& engine, std::optional<std::uint64_t> cache,
                                    const std::string& page_cache) {
  using Lengths = std::vector<std::uint64_t>;
  const ArrayOptions options{.budget = budget,
                             .engine = parse_engine(engine),
                             .page_cache = parse_page_cache(page_cache),
                             .cache = cache};
  const nb::bytes fill = nb::cast<nb::bytes>(grid["fill"]);
  ChunkGrid chunks;
  chunks.folder = path_of(nb::cast<nb::bytes>(grid["folder"]));
  chunks.prefix = nb::cast<std::string>(grid["prefix"]);
  chunks.separator = nb::cast<std::string>(grid["separator"]);
  chunks.shape = nb::cast<Lengths>(grid["shape"]);
  chunks.chunk = nb::cast<Lengths>(grid["chunk"]);
  chunks.shard = nb::cast<Lengths>(grid["shard"]);
  chunks.index_at_end = nb::cast<bool>(grid["index_at_end"]);
  chunks.index_checked = nb::cast<bool>(grid["index_checked"]);
  chunks.order = nb::cast<std::vector<std::uint32_t>>(grid["order"]);
  chunks.compression = parse_compression(nb::cast<std::string>(grid["compression"]));
  chunks.checked = nb::cast<bool>(grid["checked"]);
  chunks.fill.assign(fill.c_str(), fill.size());
  chunks.libraries = paths_of(nb::cast<std::vector<nb::bytes>>(grid["libraries"]));
  const std::string folder = chunks.folder;
  return std::make_unique<Reader>(folder, [=, type = DType::parse(dtype)] {
    return Internals::make(layout_of_chunks(format, chunks, type, big_endian), options);
  });
}

}  // namespace

void bind_containers(nb::module_& module) {
  module.def(
      "members", &members, "path"_a, "count_rows"_a,
      nb::sig("def members(path: bytes, count_rows: bool) -> "
              "list[tuple[str, str, tuple[int, ...], bool, str]] | None"),
      "Name, type, shape, whether its rows are lists, and why it cannot be read, of each array in\n"
      "a file; None for a file that holds one.");
  module.def("kind_of", &kind_of, "path"_a,
             "The kind of a file: arrow, npz, fits, nifti or hdf5, or \"\".");
  module.def("open_places", &open_places, "format"_a, "paths"_a, "places"_a, "dtype"_a,
             "big_endian"_a, "shape"_a, "budget"_a, "engine"_a, "cache"_a.none(), "page_cache"_a,
             "Opens rows of a dtype and shape at places (file, offset, rows) in files.");
  module.def(
      "crc32c",
      [](const nb::bytes& bytes) {
        return crc32c({reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()});
      },
      "bytes"_a, "The CRC-32C of bytes.");
  module.def("open_chunks", &open_chunks, "format"_a, "grid"_a, "dtype"_a, "big_endian"_a,
             "budget"_a, "engine"_a, "cache"_a.none(), "page_cache"_a,
             nb::sig("def open_chunks(format: str, grid: dict[str, object], dtype: str, "
                     "big_endian: bool, budget: Budget, engine: str, cache: int | None, "
                     "page_cache: str) -> Reader"),
             "Opens rows in chunks that must be decoded; `grid` has the fields of ChunkGrid.");
}

}  // namespace evenkeel::python
