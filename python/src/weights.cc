// Weights for Python: the tensors of files, and reading into memory that Python passes in.
#include "evenkeel/weights.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/memory.h"
#include "src/bind.h"
#include "src/interruptible.h"
#include "src/lent_array.h"
#include "src/paths.h"
#include "src/reader.h"
#include "src/stats.h"
#include "weights/group_reader.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

using Numbers = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Flags = nb::ndarray<const bool, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::unique_ptr<Weights> open_weights(const nb::bytes& path, const Budget& budget,
                                      const std::string& engine) {
  const WeightsOptions options{.budget = budget, .engine = parse_engine(engine)};
  return interruptible([name = path_of(path), options] {
    return std::make_unique<Weights>(Weights::open(name, options));
  });
}

nb::list tensors_of(const Weights& weights) {
  nb::list all;
  for (const Tensor& tensor : weights.tensors()) {
    nb::list shape;
    for (const std::uint64_t length : tensor.shape) shape.append(length);
    all.append(nb::make_tuple(tensor.name, tensor.type, nb::tuple(shape), tensor.file,
                              tensor.offset, tensor.bytes));
  }
  return all;
}

// A tensor as an array. `dtype` may be another name for its numbers: "V1" for 8-bit floats.
std::unique_ptr<Reader> array_of(const Weights& weights, const std::string& name,
                                 const std::string& dtype) {
  const auto shared = WeightsInternals::share(weights);
  const Tensor tensor = weights.at(name);
  return std::make_unique<Reader>(
      weights.paths()[tensor.file],
      [shared, tensor, type = DType::parse(dtype)] { return make_array(*shared, tensor, type); });
}

nb::dict metadata_of(const Weights& weights) {
  nb::dict all;
  for (const auto& [key, value] : weights.metadata()) {
    all[nb::str(key.c_str(), key.size())] = nb::steal(PyUnicode_DecodeUTF8(
        value.data(), static_cast<Py_ssize_t>(value.size()), "backslashreplace"));
  }
  return all;
}

// Memory for bytes at `offset` in a file. The read that begins with the first of them begins at a
// page, and there is room around them, so that the disk can write there directly.
nb::ndarray<nb::numpy, std::uint8_t> allocate(std::uint64_t offset, std::uint64_t bytes,
                                              std::uint64_t alignment) {
  const std::uint64_t lead = offset % alignment;
  auto pages = std::make_unique<Pages>(lead + bytes + alignment, "a tensor");
  std::byte* const first = pages->data() + lead;
  const nb::capsule owner(pages.release(),
                          [](void* memory) noexcept { delete static_cast<Pages*>(memory); });
  return {first, {bytes}, owner};
}

// A GroupReader that Python holds. The Python object that created it keeps the memory that is read
// into alive as long as this object.
class PythonGroupReader {
 public:
  PythonGroupReader(const Weights& weights, const Numbers& files, const Numbers& offsets,
                    const Numbers& lengths, const Numbers& addresses, const Numbers& ends,
                    const Flags& roomy, std::size_t ahead, std::uint64_t most_in_flight,
                    bool fresh) {
    const std::size_t runs = offsets.size();
    if (files.size() != runs || lengths.size() != runs || addresses.size() != runs ||
        ends.size() != roomy.size() || (ends.size() > 0 && ends(ends.size() - 1) != runs)) {
      throw Error(ErrorKind::kInvalid, "read", "lists of different lengths");
    }
    const auto shared = WeightsInternals::share(weights);
    std::vector<ReadGroup> groups(ends.size());
    std::size_t run = 0;
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i].roomy = roomy(i);
      for (; run < ends(i) && run < runs; ++run) {
        const std::uint64_t file = files(run);
        if (file >= shared->layout.segments.size() ||
            offsets(run) > shared->layout.segments[file].rows ||
            lengths(run) > shared->layout.segments[file].rows - offsets(run)) {
          throw Error(ErrorKind::kInvalid, "read", "an offset outside the files");
        }
        groups[i].runs.push_back(
            {shared->row_of(static_cast<std::uint32_t>(file), offsets(run)), lengths(run),
             reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(addresses(run)))});
      }
    }
    const WithoutGil without;  // it may wait for the memory of other reads
    reader_ =
        std::make_shared<GroupReader>(shared, std::move(groups), ahead, most_in_flight, fresh);
  }
  ~PythonGroupReader() { close(); }

  bool next() {
    if (!reader_) throw Error(ErrorKind::kClosed, "read", "used after close");
    if (reader_->has_next()) return reader_->next();  // no other thread has to be woken
    return interruptible([reader = reader_] { return reader->next(); });
  }
  void release() {
    if (reader_) reader_->release();
  }
  // Waits for reads in flight: their memory is in use until then.
  void close() {
    if (!reader_) return;
    const auto reader = std::exchange(reader_, nullptr);
    const WithoutGil without;
    reader->close();
  }

 private:
  std::shared_ptr<GroupReader> reader_;
};

}  // namespace

void bind_weights(nb::module_& module) {
  nb::class_<Weights>(module, "Weights",
                      "Tensors of files. The implementation of evenkeel.Weights.")
      .def_prop_ro("format", &Weights::format)
      .def_prop_ro("paths", [](const Weights& weights) { return bytes_of(weights.paths()); })
      .def_prop_ro("budget", [](const Weights& weights) { return weights.budget(); })
      .def_prop_ro(
          "engine",
          [](const Weights& weights) {
            const EngineReport report = weights.engine();
            return nb::make_tuple(std::string(engine_name(report.chosen)), report.how, report.why);
          },
          nb::sig("def engine(self) -> tuple[str, str, str]"))
      .def_prop_ro(
          "alignment",
          [](const Weights& weights) {
            return WeightsInternals::share(weights)->engine->limits().alignment;
          },
          "Reads begin and end at multiples of this many bytes of a file.")
      .def("tensors", &tensors_of,
           nb::sig("def tensors(self) -> list[tuple[str, str, tuple[int, ...], int, int, int]]"),
           "Name, type, shape, file, offset and bytes of each tensor.")
      .def("metadata", &metadata_of, nb::sig("def metadata(self) -> dict[str, str]"))
      .def(
          "require", [](const Weights& weights, const std::string& name) { weights.at(name); },
          "name"_a, "Raises IndexError, with the closest name, if there is no such tensor.")
      .def("array", &array_of, "name"_a, "dtype"_a, "One tensor, read as an array.")
      .def(
          "reserve",
          [](const Weights& weights, std::uint64_t bytes, const std::string& what) {
            return weights.budget().reserve(bytes, what);
          },
          "bytes"_a, "what"_a)
      .def(
          "stats", [](const Weights& weights) { return dict_of(weights.stats()); },
          nb::sig("def stats(self) -> dict[str, int]"))
      .def("close", &Weights::close);
  nb::class_<PythonGroupReader>(module, "GroupReader",
                                "Reads groups of runs into memory, on its own thread.")
      .def(nb::init<const Weights&, const Numbers&, const Numbers&, const Numbers&, const Numbers&,
                    const Numbers&, const Flags&, std::size_t, std::uint64_t, bool>(),
           "weights"_a, "files"_a, "offsets"_a, "lengths"_a, "addresses"_a, "ends"_a, "roomy"_a,
           "ahead"_a, "most_in_flight"_a, "fresh"_a)
      .def("next", &PythonGroupReader::next,
           "Waits for the next group. Returns False after the last.")
      .def("release", &PythonGroupReader::release, "Allows one more group to be read.")
      .def("close", &PythonGroupReader::close);
  module.def("open_weights", &open_weights, "path"_a, "budget"_a, "engine"_a);
  module.def(
      "allocate", &allocate, "offset"_a, "bytes"_a, "alignment"_a, nb::rv_policy::reference,
      "Memory for bytes at this offset of a file. If reads have this alignment, they can be read in"
      " place.");
}

}  // namespace evenkeel::python
