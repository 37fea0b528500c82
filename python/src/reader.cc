#include "src/reader.h"

#include "evenkeel/error.h"
#include "src/without_gil.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;

// The first pieces of a long read; see in_pieces.
constexpr std::uint64_t kFirstBytes = 4_MiB, kFirstRows = 64;

}  // namespace

Reader::Reader(std::vector<std::string> paths, ArrayOptions options)
    : paths_(std::move(paths)), options_(std::move(options)) {
  const WithoutGil without;
  array_ = std::make_shared<Array>(Array::open(paths_, options_));
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
