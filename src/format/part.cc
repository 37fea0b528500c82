#include "format/part.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

std::optional<std::uint64_t> times(std::optional<std::uint64_t> a, std::uint64_t b) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto product = a ? checked_mul(*a, b) : std::nullopt;
  return product && *product <= kMost ? product : std::nullopt;
}

void append_stretches(Layout& layout, Part& part) {
  if (part.stretches.size() == 1) {
    part.segment.data_offset = part.stretches.front().offset;
    part.stretches.clear();
  }
  if (part.stretches.empty() && layout.stretches.empty()) return;
  layout.spell_out_stretches();
  const auto number = static_cast<std::uint32_t>(layout.segments.size());
  if (part.stretches.empty()) {
    part.stretches.push_back({0, part.segment.rows, part.segment.data_offset, number});
  }
  part.segment.data_offset = 0;
  for (Stretch stretch : part.stretches) {
    stretch.first_row += part.segment.first_row;
    stretch.segment = number;
    layout.stretches.push_back(stretch);
  }
}

void append_offset_batches(Layout& layout, const Part& part) {
  OffsetBatch before;
  if (!layout.offset_batches.empty()) {
    const OffsetBatch& last = layout.offset_batches.back();
    before = {last.first_list + last.lists, 0, 0, last.first_value + last.values, 0};
  }
  for (OffsetBatch batch : part.offset_batches) {
    batch.first_list += before.first_list;
    batch.first_offset += part.segment.first_row;
    batch.first_value += before.first_value;
    layout.offset_batches.push_back(batch);
  }
}

}  // namespace

std::optional<Measure> measure(const std::vector<std::uint64_t>& shape, std::uint32_t item_size) {
  const std::uint64_t rows = shape.empty() ? 1 : shape[0];
  std::optional<std::uint64_t> row_bytes = item_size;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) row_bytes = times(row_bytes, shape[axis]);
  const auto bytes = times(row_bytes, rows);
  if (!bytes) return std::nullopt;
  return Measure{rows, *row_bytes, *bytes};
}

Storage storage_of(const std::vector<std::uint64_t>& shape, bool fortran) {
  const auto wide = std::count_if(shape.begin(), shape.end(), [](auto n) { return n != 1; });
  if (wide <= 1 || (!shape.empty() && shape[0] == 0)) return Storage::kEither;
  return fortran ? Storage::kFortran : Storage::kC;
}

bool needs_swap(DType dtype, bool big_endian) {
  return dtype.swap_unit() > 1 && big_endian != (std::endian::native == std::endian::big);
}

const char* byte_order(bool swapped) {
  const bool big = swapped != (std::endian::native == std::endian::big);
  return big ? "big-endian numbers" : "little-endian numbers";
}

void append(Layout& layout, Part part) {
  const auto rows = checked_add(layout.rows, part.segment.rows);
  const auto bytes = rows ? checked_mul(*rows, part.row_bytes) : std::nullopt;
  if (!bytes) {
    throw Error(ErrorKind::kFormat, "open", "all files together are more than 2^64-1 bytes")
        .in(part.segment.path);
  }
  part.segment.first_row = std::exchange(layout.rows, *rows);
  layout.paths.push_back(part.segment.path);
  append_offset_batches(layout, part);
  if (part.segment.rows == 0) return;
  append_stretches(layout, part);
  layout.segments.push_back(std::move(part.segment));
  // Arrays of many files would use up the descriptors of the process.
  if (layout.segments.size() == kMostKeptFiles + 1) {
    for (Segment& segment : layout.segments) segment.kept.reset();
  }
  if (layout.segments.size() > kMostKeptFiles) layout.segments.back().kept.reset();
}

std::string printable(std::string_view bytes) {
  constexpr std::size_t kMost = 64;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const char c : bytes.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return bytes.size() > kMost ? text + "..." : text;
}

}  // namespace evenkeel
