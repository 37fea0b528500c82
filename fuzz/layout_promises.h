// Checks a layout against the invariants of layout.h.
#pragma once

#include <optional>

#include "base/checked.h"
#include "format/layout.h"
#include "fuzz/target.h"

namespace evenkeel::fuzz {

inline std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  const auto exact = checked_mul(a, b);
  MUST(exact);
  return *exact;
}

inline void check_segments(const Layout& layout) {
  std::uint64_t row = 0;
  for (const Segment& segment : layout.segments) {
    MUST(segment.rows > 0);
    MUST(segment.first_row == row);
    row += segment.rows;
    if (!layout.stretches.empty()) continue;
    const auto end = checked_add(segment.data_offset, product(segment.rows, layout.row_bytes));
    MUST(end && *end <= segment.identity.size);
  }
  MUST(row == layout.rows);
  if (layout.stretches.empty()) return;
  MUST(!layout.fortran);
  row = 0;
  for (const Stretch& stretch : layout.stretches) {
    MUST(stretch.rows > 0 && stretch.segment < layout.segments.size());
    MUST(stretch.first_row == row);
    row += stretch.rows;
    const Segment& segment = layout.segments[stretch.segment];
    MUST(stretch.first_row >= segment.first_row && row <= segment.first_row + segment.rows);
    const auto end = checked_add(stretch.offset, product(stretch.rows, layout.row_bytes));
    MUST(end && *end <= segment.identity.size);
  }
  MUST(row == layout.rows);
}

inline void check_layout(const Layout& layout) {
  MUST(!layout.format.empty());
  MUST(!layout.paths.empty());
  MUST(layout.dtype.size >= 1);
  MUST(layout.row_bytes >= 1 && layout.row_bytes % layout.dtype.size == 0);
  MUST(layout.bytes() == product(layout.rows, layout.row_bytes));
  std::uint64_t row_bytes = layout.dtype.size;
  for (std::size_t axis = 1; axis < layout.shape.size(); ++axis) {
    row_bytes = product(row_bytes, layout.shape[axis]);
  }
  MUST(row_bytes == layout.row_bytes);
  MUST(layout.rows == (layout.shape.empty() ? 1 : layout.shape[0]));
  check_segments(layout);
  const Layout flat = layout.flattened();
  MUST(flat.bytes() == layout.bytes());
  MUST(flat.row_bytes == layout.dtype.size);
  check_segments(flat);
}

}  // namespace evenkeel::fuzz
