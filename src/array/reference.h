// Start reading here. This reads rows with plain pread, one element at a time. Every engine must
// return the same bytes: the differential tests and the fuzz targets compare all engines with it.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

#include "format/layout.h"

namespace evenkeel {

// Reads one element of the array, given its row and its place in a row-major row.
inline void reference_element(const Layout& layout, std::uint64_t row, std::uint64_t place,
                              std::byte* out) {
  const Segment* segment = &layout.segments[0];
  while (row >= segment->first_row + segment->rows) ++segment;
  const std::uint64_t item = layout.dtype.size, columns = layout.row_bytes / item;
  std::uint64_t stored = (row - segment->first_row) * columns + place;
  if (layout.fortran) {  // the first axis runs fastest, then the second, ...
    stored = row - segment->first_row;
    std::uint64_t step = segment->rows, rest = place, weight = columns;
    for (std::size_t axis = 1; axis < layout.shape.size(); ++axis) {
      weight /= layout.shape[axis];
      stored += rest / weight * step;
      rest %= weight;
      step *= layout.shape[axis];
    }
  }
  std::uint64_t at = segment->data_offset + stored * item;
  for (const Stretch& stretch : layout.stretches) {
    if (row < stretch.first_row || row >= stretch.first_row + stretch.rows) continue;
    at = stretch.offset + ((row - stretch.first_row) * columns + place) * item;
  }
  const int fd = ::open(segment->path.c_str(), O_RDONLY | O_CLOEXEC);
  const auto offset = static_cast<off_t>(at);
  const ssize_t got = ::pread(fd, out, item, offset);
  ::close(fd);
  if (got != static_cast<ssize_t>(item)) throw std::runtime_error("reference: short read");
  const std::uint64_t unit = layout.dtype.swap_unit();
  for (std::uint64_t i = 0; layout.swapped && i < item; i += unit) {
    std::reverse(out + i, out + i + unit);
  }
}

inline std::vector<std::byte> reference_rows(const Layout& layout,
                                             const std::vector<std::uint64_t>& rows) {
  std::vector<std::byte> out(rows.size() * layout.row_bytes);
  const std::uint64_t columns = layout.row_bytes / layout.dtype.size;
  std::byte* at = out.data();
  for (const std::uint64_t row : rows) {
    for (std::uint64_t place = 0; place < columns; ++place, at += layout.dtype.size) {
      reference_element(layout, row, place, at);
    }
  }
  return out;
}

}  // namespace evenkeel
