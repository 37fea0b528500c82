#include "src/reader.h"

#include <atomic>
#include <tuple>
#include <utility>

#include "array/internal.h"
#include "array/resident.h"
#include "evenkeel/error.h"
#include "src/interruptible.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;

// Larger reads are handed to another thread, which costs less than copying them.
constexpr std::uint64_t kSmallRead = 64 << 10;

}  // namespace

Reader::Reader(std::string first_path, const std::function<Array()>& open)
    : first_path_(std::move(first_path)) {
  std::tie(array_, local_) = interruptible([open] {
    auto array = std::make_shared<Array>(open());
    const bool local = on_local_filesystems(Internals::of(*array));
    return std::pair(std::move(array), local);
  });
}

std::shared_ptr<Array> Reader::array() const {
  if (array_) return array_;
  throw Error(ErrorKind::kClosed, "array", "used after close")
      .in(first_path_)
      .hint("open it again");
}

EngineReport Reader::engine() const {
  return interruptible([array = array()] { return array->engine(); });
}

Reservation Reader::room_for(std::uint64_t bytes, const std::string& what) {
  const auto array = this->array();
  if (auto room = array->budget().try_reserve(bytes, what)) return std::move(*room);
  return interruptible(
      [array, bytes, what] { return Internals::of(*array).room_for(bytes, what); });
}

Reservation Reader::room_for_read(std::uint64_t bytes, const std::string& what) {
  const auto array = this->array();
  if (auto room = array->budget().try_reserve_for_read(bytes, what)) return std::move(*room);
  // A call that a signal handler ended must leave the queue of calls that wait for memory.
  const auto abandoned = std::make_shared<std::atomic<bool>>(false);
  try {
    return interruptible([array, bytes, what, abandoned] {
      return Internals::of(*array).room_for_read(bytes, what, [&] {
        if (*abandoned) throw Error(ErrorKind::kClosed, "read", "interrupted");
      });
    });
  } catch (const nb::python_error&) {
    *abandoned = true;
    throw;
  }
}

// `owner` keeps the memory of `out` alive for a read that a signal handler abandons.
template <class Owner>
void Reader::read_rows(const std::shared_ptr<Array>& array, std::uint64_t first,
                       std::uint64_t count, std::span<std::byte> out, const Owner& owner) const {
  if (local_ && out.size() <= kSmallRead) {
    Array::Impl& impl = Internals::of(*array);
    if (impl.crop_from_cache(first, count, out.data())) return;
    // Copying a few pages is faster than releasing and acquiring the GIL.
    if (read_if_resident(impl, first, count, out)) return;
    // This does not wait for a disk, so no worker thread is needed either.
    if (in_page_cache(impl, first, count) && impl.engine_if_settled()) {
      const WithoutGil without;
      array->read(first, count, out);
      return;
    }
  }
  interruptible(
      [array, first, count, out, out_held = held(owner)] { array->read(first, count, out); });
}

// The memory is that of a bytearray, which any dtype can view: NumPy's own buffers do not export
// all dtypes (datetime64).
nb::object Reader::row(std::uint64_t index, nb::handle shape, nb::handle dtype) const {
  const auto array = this->array();
  const std::uint64_t bytes = array->row_bytes();
  const nb::object memory =
      nb::steal(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes)));
  if (!memory.is_valid()) throw nb::python_error();
  auto* const data = reinterpret_cast<std::byte*>(PyByteArray_AsString(memory.ptr()));
  read_rows(array, index, 1, std::span(data, bytes), memory);
  static PyObject* const ndarray =
      nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
  PyObject* const arguments[] = {shape.ptr(), dtype.ptr(), memory.ptr()};
  nb::object row = nb::steal(PyObject_Vectorcall(ndarray, arguments, 3, nullptr));
  if (row.is_valid() && PyTuple_Size(shape.ptr()) == 0) {
    row = nb::steal(PyObject_GetItem(row.ptr(), shape.ptr()));  // array[()] is the scalar
  }
  if (!row.is_valid()) throw nb::python_error();
  return row;
}

void Reader::read(std::uint64_t first, std::uint64_t count, const Bytes& out) const {
  const auto array = this->array();
  const auto bytes = span_of(out);
  if (bytes.size() != count * array->row_bytes()) {
    throw Error(ErrorKind::kInvalid, "read", "`out` does not have the size of the rows");
  }
  read_rows(array, first, count, bytes, out);
}

void Reader::gather(const RowNumbers& rows, const Bytes& out) const {
  const auto array = this->array();
  const std::span numbers(rows.data(), rows.size());
  const auto bytes = span_of(out);
  if (bytes.size() != numbers.size() * array->row_bytes()) {
    throw Error(ErrorKind::kInvalid, "gather", "`out` does not have the size of the rows");
  }
  // This does not wait for a disk, so no worker thread is needed.
  if (local_ && known_in_memory(Internals::of(*array), numbers)) {
    const WithoutGil without;
    array->gather(numbers, bytes);
    return;
  }
  interruptible([array, numbers, bytes, rows_held = held(rows), out_held = held(out)] {
    array->gather(numbers, bytes);
  });
}

}  // namespace evenkeel::python
