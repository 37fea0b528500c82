// Where rows are in the files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "array/plan.h"
#include "format/layout.h"

namespace evenkeel {

// The segment that holds a row; row < layout.rows.
inline std::uint32_t segment_of(const Layout& layout, std::uint64_t row) {
  if (layout.segments.size() == 1) return 0;
  const auto after = std::ranges::upper_bound(layout.segments, row, {}, &Segment::first_row);
  return static_cast<std::uint32_t>(after - layout.segments.begin()) - 1;
}

// In Fortran order a row is spread over as many columns; in C order it is one piece.
inline std::uint64_t columns_of(const Layout& layout) {
  return layout.fortran ? layout.row_bytes / layout.dtype.size : 1;
}

inline Scatter scatter_of(const Layout& layout) {
  if (!layout.fortran || layout.row_bytes == layout.dtype.size) return {};
  return {layout.dtype.size, layout.row_bytes};
}

// The offset in bytes of a column in a row-major row. Columns are numbered as they are stored.
std::uint64_t column_place(const Layout& layout, std::uint64_t column);

// The stretch that holds a row. The layout must have stretches.
inline const Stretch& stretch_of(const Layout& layout, std::uint64_t row) {
  return *std::prev(std::ranges::upper_bound(layout.stretches, row, {}, &Stretch::first_row));
}
// The stretch of a file that holds the byte at `offset`. The stretches must be stored in order.
// Without stretches, returns all rows of the segment.
Stretch stretch_at(const Layout& layout, std::uint32_t segment, std::uint64_t offset);
// Whether the stretches are in the same order in the files, without overlap.
bool stored_in_order(const Layout& layout);

// The first piece of one column of rows row, row+1, ...: as many of `count` rows as are contiguous
// in one segment. `row_out` is where the first row goes. `taken` becomes the number of rows in the
// piece.
inline Piece piece_of(const Layout& layout, std::uint64_t column, std::uint64_t row,
                      std::uint64_t count, std::byte* row_out, std::uint64_t& taken) {
  if (!layout.stretches.empty()) {
    const Stretch& stretch = stretch_of(layout, row);
    const std::uint64_t before = row - stretch.first_row;
    taken = std::min(count, stretch.rows - before);
    return {stretch.segment, stretch.offset + before * layout.row_bytes, taken * layout.row_bytes,
            row_out};
  }
  const std::uint32_t file = segment_of(layout, row);
  const Segment& segment = layout.segments[file];
  const std::uint64_t within = row - segment.first_row;
  taken = std::min(count, segment.rows - within);
  if (!layout.fortran) {
    return {file, segment.data_offset + within * layout.row_bytes, taken * layout.row_bytes,
            row_out};
  }
  const std::uint64_t item = layout.dtype.size;
  return {file, segment.data_offset + (column * segment.rows + within) * item, taken * item,
          row_out + column_place(layout, column)};
}

// Reverses each `unit` bytes.
void swap_bytes(std::byte* data, std::uint64_t bytes, std::uint32_t unit);

}  // namespace evenkeel
