#include "src/reader.h"

#include "array/internal.h"
#include "evenkeel/error.h"
#include "src/without_gil.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;

// The first pieces of a long read; see in_pieces.
constexpr std::uint64_t kFirstBytes = 4_MiB, kFirstRows = 64;

}  // namespace

Reader::Reader(const std::vector<std::string>& paths, const ArrayOptions& options)
    : first_path_(paths.front()) {
  const WithoutGil without;
  array_ = std::make_shared<Array>(Array::open(paths, options));
}

std::shared_ptr<Array> Reader::array() const {
  if (array_) return array_;
  throw Error(ErrorKind::kClosed, "array", "used after close")
      .in(first_path_)
      .hint("open it again");
}

Reservation Reader::room_for(std::uint64_t bytes, const std::string& what) {
  const auto array = this->array();
  const WithoutGil without;
  return Internals::of(*array).room_for(bytes, what);
}

Reservation Reader::room_for_read(std::uint64_t bytes, const std::string& what) {
  const auto array = this->array();
  const WithoutGil without;
  return Internals::of(*array).room_for_read(bytes, what, [&] { without.check_signals(); });
}

// The memory is a bytearray's, which any dtype can view: NumPy's own buffers do not export all of
// them (datetime64).
nb::object Reader::row(std::uint64_t index, nb::handle shape, nb::handle dtype) const {
  const auto array = this->array();
  const std::uint64_t bytes = array->row_bytes();
  const nb::object memory =
      nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
  if (!memory.is_valid()) throw nb::python_error();
  auto* const data = reinterpret_cast<std::byte*>(PyByteArray_AS_STRING(memory.ptr()));
  {
    const WithoutGil without;
    array->read(index, 1, std::span(data, bytes));
  }
  static PyObject* const ndarray =
      nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
  PyObject* const arguments[] = {shape.ptr(), dtype.ptr(), memory.ptr()};
  nb::object row = nb::steal(PyObject_Vectorcall(ndarray, arguments, 3, nullptr));
  if (row.is_valid() && PyTuple_GET_SIZE(shape.ptr()) == 0) {
    row = nb::steal(PyObject_GetItem(row.ptr(), shape.ptr()));  // array[()] is the scalar
  }
  if (!row.is_valid()) throw nb::python_error();
  return row;
}

void Reader::read(std::uint64_t first, std::uint64_t count, const Bytes& out) const {
  const auto array = this->array();
  const WithoutGil without;
  const std::uint64_t row_bytes = array->row_bytes();
  const auto bytes = span_of(out);
  if (bytes.size() != count * row_bytes) {
    throw Error(ErrorKind::kInvalid, "read", "`out` is not of the size of the rows");
  }
  in_pieces(without, count, kFirstBytes / row_bytes, [&](std::uint64_t done, std::uint64_t now) {
    array->read(first + done, now, bytes.subspan(done * row_bytes, now * row_bytes));
  });
}

void Reader::gather(const RowNumbers& rows, const Bytes& out) const {
  const auto array = this->array();
  const WithoutGil without;
  const std::uint64_t row_bytes = array->row_bytes();
  const std::span numbers(rows.data(), rows.size());
  const auto bytes = span_of(out);
  if (bytes.size() != numbers.size() * row_bytes) {
    throw Error(ErrorKind::kInvalid, "gather", "`out` is not of the size of the rows");
  }
  const std::uint64_t first_piece = std::min(kFirstRows, kFirstBytes / row_bytes);
  in_pieces(without, numbers.size(), first_piece, [&](std::uint64_t done, std::uint64_t now) {
    array->gather(numbers.subspan(done, now), bytes.subspan(done * row_bytes, now * row_bytes));
  });
}

}  // namespace evenkeel::python
