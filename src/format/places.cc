#include "format/places.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "format/part.h"

namespace evenkeel {
namespace {

void add_place(const Source& source, const RowPlace& place, Part& part) {
  const auto bytes = checked_mul(place.rows, part.row_bytes);
  const std::uint64_t size = source.identity.size;
  if (!bytes || place.offset > size || *bytes > size - place.offset) {
    throw Error(ErrorKind::kFormat, "open",
                with_commas(place.rows) + " rows of " + with_commas(part.row_bytes) +
                    " bytes at byte " + with_commas(place.offset) + ", but the file has " +
                    with_commas(size) + " bytes")
        .in(source.path)
        .at(place.offset)
        .hint("the download or copy may be incomplete");
  }
  if (place.rows == 0) return;
  const auto rows = checked_add(part.segment.rows, place.rows);
  if (!rows) throw Error(ErrorKind::kFormat, "open", "more rows than any file has").in(source.path);
  if (!part.stretches.empty()) {
    Stretch& last = part.stretches.back();
    if (last.offset + last.rows * part.row_bytes == place.offset) {
      last.rows += place.rows;
      part.segment.rows = *rows;
      return;
    }
  }
  part.stretches.push_back({part.segment.rows, place.rows, place.offset, 0});
  part.segment.rows = *rows;
}

}  // namespace

Layout layout_of_places(const std::string& format, const std::vector<std::string>& files,
                        std::span<const RowPlace> places, DType dtype, bool big_endian,
                        std::vector<std::uint64_t> shape) {
  const auto size = measure(shape, dtype.size);
  if (!size || shape.empty() || size->row_bytes == 0) {
    throw Error(ErrorKind::kInvalid, "open",
                "shape " + shape_text(shape) + " of " + dtype.name() + " has no rows to read")
        .in(files.empty() ? "" : files.front());
  }
  Layout layout;
  layout.format = format;
  layout.dtype = dtype;
  layout.swapped = needs_swap(dtype, big_endian);
  layout.row_bytes = size->row_bytes;
  for (std::size_t i = 0; i < places.size();) {
    const std::uint64_t file = places[i].file;
    if (file >= files.size()) {
      throw Error(ErrorKind::kInvalid, "open",
                  "a place in file " + with_commas(file) + " of " + with_commas(files.size()));
    }
    const Source source = open_source(files[file]);
    Part part;
    part.format = layout.format;
    part.dtype = dtype;
    part.row_bytes = size->row_bytes;
    part.segment = source.segment(0, 0);
    for (; i < places.size() && places[i].file == file; ++i) add_place(source, places[i], part);
    append(layout, std::move(part));
  }
  if (layout.rows != size->rows) {
    throw Error(ErrorKind::kFormat, "open",
                "the places hold " + with_commas(layout.rows) + " rows, but shape " +
                    shape_text(shape) + " has " + with_commas(size->rows))
        .in(files.empty() ? "" : files.front());
  }
  layout.shape = std::move(shape);
  if (layout.paths.empty()) layout.paths = files;
  return layout;
}

}  // namespace evenkeel
