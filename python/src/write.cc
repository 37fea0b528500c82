// Writers for Python. They take memory of NumPy arrays, and wait without the interpreter's lock.
#include "evenkeel/write.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "src/bind.h"
#include "src/paths.h"
#include "src/without_gil.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

using WrittenBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using TokenValues = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const std::byte> span_of(const WrittenBytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// One writer, and the thread that is in a call, which checks for Ctrl-C while it waits for the
// disk.
template <class Writer>
class PythonWriter {
 public:
  template <class Options>
  PythonWriter(const std::string& path, Options options) {
    options.while_waiting = [this] {
      if (without_) without_->check_signals();
    };
    call([&] { writer_.emplace(Writer::create(path, options)); });
  }
  PythonWriter(const PythonWriter&) = delete;
  PythonWriter& operator=(const PythonWriter&) = delete;
  ~PythonWriter() { drop(); }

  template <class Work>
  auto call(Work work) {
    if (busy_) {
      throw Error(ErrorKind::kInvalid, "write", "another thread is in a call of this writer")
          .hint("a writer can be used by one thread at a time: use a lock");
    }
    const Busy busy(busy_);
    const WithoutGil without;
    without_ = WithoutGil::on_main_thread() ? &without : nullptr;
    return work();
  }
  Writer& get() {
    if (!writer_) throw Error(ErrorKind::kClosed, "write", "the writer was closed");
    return *writer_;
  }
  // Keeps a file with a checkpoint; removes one without.
  void drop() {
    // Another thread is in a call: when it returns, this object and its writer are destroyed.
    if (!writer_ || busy_) return;
    const WithoutGil without;
    without_ = nullptr;
    writer_.reset();
  }

 private:
  struct Busy {
    explicit Busy(bool& flag) : flag_(flag) { flag_ = true; }
    ~Busy() { flag_ = false; }
    bool& flag_;
  };
  std::optional<Writer> writer_;
  const WithoutGil* without_ = nullptr;
  bool busy_ = false;
};

using PythonArrayWriter = PythonWriter<ArrayWriter>;
using PythonTokenWriter = PythonWriter<TokenWriter>;

void append_documents(TokenWriter& writer, std::span<const std::byte> tokens,
                      const TokenValues& lengths) {
  const std::uint64_t size = writer.dtype().size;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t length = lengths.data()[i];
    if (length < 0 || static_cast<std::uint64_t>(length) > tokens.size() / size) {
      throw Error(ErrorKind::kInvalid, "write", "the lengths of documents exceed their tokens")
          .in(writer.path());
    }
    writer.append(tokens.first(static_cast<std::uint64_t>(length) * size));
    writer.end_document();
    tokens = tokens.subspan(static_cast<std::uint64_t>(length) * size);
  }
}

template <class Options>
Options common(const Budget& budget, bool checksums, bool resume) {
  Options options;
  options.budget = budget;
  options.checksums = checksums;
  options.resume = resume;
  return options;
}

template <class Bound>
void bind_common(Bound& bound) {
  using Python = typename Bound::Type;
  bound
      .def(
          "checkpoint",
          [](Python& self, const nb::bytes& state) {
            self.call([&] { self.get().checkpoint({state.c_str(), state.size()}); });
          },
          "state"_a)
      .def_prop_ro("state",
                   [](Python& self) {
                     const std::string& state = self.get().state();
                     return nb::bytes(state.data(), state.size());
                   })
      .def_prop_ro("how", [](Python& self) { return self.get().how(); })
      .def("close", [](Python& self) { self.call([&] { self.get().close(); }); })
      .def("abort", [](Python& self) { self.call([&] { self.get().abort(); }); })
      .def("drop", &Python::drop);
}

}  // namespace

void bind_write(nb::module_& module) {
  nb::class_<PythonArrayWriter> array(module, "ArrayWriter",
                                      "The implementation of evenkeel.ArrayWriter.");
  array
      .def(
          "__init__",
          [](PythonArrayWriter* self, const nb::bytes& path, const std::string& dtype,
             const std::string& descr, const std::vector<std::int64_t>& shape,
             const std::string& format, const Budget& budget, bool checksums, bool resume) {
            auto options = common<ArrayWriterOptions>(budget, checksums, resume);
            options.dtype = DType::parse(dtype);
            options.descr = descr;
            options.shape = shape;
            options.format = format;
            new (self) PythonArrayWriter(path_of(path), options);
          },
          "path"_a, "dtype"_a, "descr"_a, "shape"_a, "format"_a, "budget"_a, "checksums"_a,
          "resume"_a)
      .def(
          "append",
          [](PythonArrayWriter& self, const WrittenBytes& rows) {
            self.call([&] { self.get().append(span_of(rows)); });
          },
          "rows"_a)
      .def(
          "assign",
          [](PythonArrayWriter& self, std::uint64_t first, const WrittenBytes& rows) {
            self.call([&] { self.get().assign(first, span_of(rows)); });
          },
          "first"_a, "rows"_a)
      .def_prop_ro("rows", [](PythonArrayWriter& self) { return self.get().rows(); })
      .def_prop_ro("shape", [](PythonArrayWriter& self) { return self.get().shape(); });
  bind_common(array);

  nb::class_<PythonTokenWriter> tokens(module, "TokenWriter",
                                       "The implementation of evenkeel.TokenWriter.");
  tokens
      .def(
          "__init__",
          [](PythonTokenWriter* self, const nb::bytes& path, const std::string& dtype,
             const std::string& format, std::optional<std::int64_t> eot, const Budget& budget,
             bool checksums, bool resume) {
            auto options = common<TokenWriterOptions>(budget, checksums, resume);
            options.dtype = DType::parse(dtype);
            options.format = format;
            options.eot = eot;
            new (self) PythonTokenWriter(path_of(path), options);
          },
          "path"_a, "dtype"_a, "format"_a, "eot"_a.none(), "budget"_a, "checksums"_a, "resume"_a)
      .def(
          "append",
          [](PythonTokenWriter& self, const WrittenBytes& tokens) {
            self.call([&] { self.get().append(span_of(tokens)); });
          },
          "tokens"_a, "Appends tokens of the dtype, as bytes.")
      .def(
          "append_values",
          [](PythonTokenWriter& self, const TokenValues& values) {
            self.call([&] {
              self.get().append(std::span<const std::int64_t>(values.data(), values.size()));
            });
          },
          "values"_a)
      .def(
          "append_documents",
          [](PythonTokenWriter& self, const WrittenBytes& tokens, const TokenValues& lengths) {
            self.call([&] { append_documents(self.get(), span_of(tokens), lengths); });
          },
          "tokens"_a, "lengths"_a,
          "Appends whole documents: their tokens as bytes, and the length of each.")
      .def("end_document",
           [](PythonTokenWriter& self) { self.call([&] { self.get().end_document(); }); })
      .def_prop_ro("tokens", [](PythonTokenWriter& self) { return self.get().tokens(); })
      .def_prop_ro("documents", [](PythonTokenWriter& self) { return self.get().documents(); })
      .def_prop_ro("format", [](PythonTokenWriter& self) { return self.get().format(); })
      .def_prop_ro("path", [](PythonTokenWriter& self) {
        const std::string& path = self.get().path();
        return nb::bytes(path.data(), path.size());
      });
  bind_common(tokens);
}

}  // namespace evenkeel::python
