#include "src/reader.h"

#include <tuple>
#include <utility>

#include "array/internal.h"
#include "array/resident.h"
#include "evenkeel/error.h"
#include "src/interruptible.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;

// More than this is handed to another thread, which costs less than copying it.
constexpr std::uint64_t kSmallRead = 64 << 10;

}  // namespace

Reader::Reader(std::vector<std::string> paths, ArrayOptions options)
    : paths_(std::move(paths)), options_(std::move(options)) {
  std::tie(array_, local_) = interruptible([paths = paths_, options = options_] {
    auto array = std::make_shared<Array>(Array::open(paths, options));
    const bool local = on_local_filesystems(Internals::of(*array));
    return std::pair(std::move(array), local);
  });
}

std::shared_ptr<Array> Reader::array() const {
  if (array_) return array_;
  throw Error(ErrorKind::kClosed, "array", "used after close")
      .in(paths_.front())
      .hint("open it again");
}

bool Reader::mapped_by_choice() const {
  const EngineReport report = array_->engine();
  return report.asked == EngineKind::kAuto && report.chosen == EngineKind::kMap;
}

Reservation Reader::room_for(std::uint64_t bytes, const std::string& what) {
  const Budget budget = array()->budget();
  if (auto room = budget.try_reserve(bytes, what)) return std::move(*room);
  if (mapped_by_choice() && bytes < budget.limit()) return room_instead_of_mapping(bytes, what);
  return budget.reserve(bytes, what);
}

// Room first, then the array anew: it finds that the data does not fit beside it, and reads.
Reservation Reader::room_instead_of_mapping(std::uint64_t bytes, const std::string& what) {
  array_.reset();
  try {
    Reservation room = options_.budget.reserve(bytes, what);
    array_ = std::make_shared<Array>(Array::open(paths_, options_));
    return room;
  } catch (const Error&) {
    array_ = std::make_shared<Array>(Array::open(paths_, options_));
    throw;
  }
}

void Reader::read(std::uint64_t first, std::uint64_t count, const Bytes& out) const {
  const auto array = this->array();
  const auto bytes = span_of(out);
  if (bytes.size() != count * array->row_bytes()) {
    throw Error(ErrorKind::kInvalid, "read", "`out` is not of the size of the rows");
  }
  // A few pages are copied faster than the GIL changes hands.
  if (local_ && bytes.size() <= kSmallRead &&
      read_if_resident(Internals::of(*array), first, count, bytes)) {
    return;
  }
  interruptible(
      [array, first, count, bytes, out_held = held(out)] { array->read(first, count, bytes); });
}

void Reader::gather(const RowNumbers& rows, const Bytes& out) const {
  const auto array = this->array();
  const std::span numbers(rows.data(), rows.size());
  const auto bytes = span_of(out);
  if (bytes.size() != numbers.size() * array->row_bytes()) {
    throw Error(ErrorKind::kInvalid, "gather", "`out` is not of the size of the rows");
  }
  interruptible([array, numbers, bytes, rows_held = held(rows), out_held = held(out)] {
    array->gather(numbers, bytes);
  });
}

}  // namespace evenkeel::python
