#include "format/layout.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/visible.h"
#include "evenkeel/error.h"
#include "format/container.h"
#include "format/npy.h"
#include "format/raw.h"
#include "format/unknown.h"
#include "remote/disk_cache.h"

namespace evenkeel {
namespace {

Error conflicts_with_header(const Source& source, const NpyHeader& header,
                            const FormatOptions& options) {
  std::string given = options.dtype->name();
  if (options.dtype->size == header.element.dtype.size) {  // what is said again may well be right
    return Error(ErrorKind::kInvalid, "open",
                 "dtype and shape were given, but the NPY header defines them: " +
                     header.element.dtype.name() + " of shape " + shape_text(header.shape))
        .in(source.path)
        .hint("leave dtype and shape out; to read raw bytes past the header, give offset=" +
              std::to_string(header.data_offset));
  }
  if (!options.shape.empty()) given += " of shape " + shape_text(options.shape);
  return Error(ErrorKind::kInvalid, "open",
               "the NPY header says " + header.element.dtype.name() + " of shape " +
                   shape_text(header.shape) + ", but " + given + " was given")
      .in(source.path)
      .hint("leave dtype and shape out; to read raw bytes past the header, give offset=" +
            std::to_string(header.data_offset));
}

Part read_npy(const Source& source, std::string_view head, const FormatOptions& options) {
  const bool placed = options.offset != 0 || !options.shape.empty();
  if (!options.dtype && (placed || options.big_endian)) {
    throw Error(ErrorKind::kInvalid, "open",
                "shape, offset or byte order was given, but the NPY header defines them")
        .in(source.path)
        .hint("leave them out, or give dtype and offset to read raw bytes past the header");
  }
  const NpyHeader header = read_npy_header(source, head);
  if (options.dtype && (placed || options.dtype->size != header.element.dtype.size)) {
    throw conflicts_with_header(source, header, options);
  }
  return npy_part(source, header, options);
}

Error no_container(const Source& source, std::string_view head, const std::string& name) {
  if (!is_npy(head)) return unknown_format(source, head);
  return Error(ErrorKind::kInvalid, "open",
               "an NPY file holds one array, without a name; \"" + printable(name) +
                   "\" was requested")
      .in(source.path)
      .hint("leave the name out");
}

Part read_part(const std::string& path, const FormatOptions& options, bool alone) {
  const Source source = open_source(path);
  if (options.dtype && options.offset != 0) return read_raw(source, options, alone);
  const std::string head = source.read(0, kHeadBytes);
  const bool described = !options.dtype && options.shape.empty() && options.offset == 0;
  if (is_container(head) && (described || !options.name.empty())) {
    if (described && !options.big_endian) return read_member(source, head, options.name);
    throw Error(ErrorKind::kInvalid, "open",
                "dtype, shape, offset or byte order was given, but the file defines them")
        .in(source.path)
        .hint("leave them out; name chooses the array");
  }
  if (!options.name.empty()) throw no_container(source, head, options.name);
  if (is_npy(head)) return read_npy(source, head, options);
  if (options.dtype) return read_raw(source, options, alone);
  throw unknown_format(source, head);
}

const char* order_name(Storage storage) {
  return storage == Storage::kFortran ? "Fortran order" : "C order";
}

std::string row_text(const Part& part) {
  return "rows of shape " +
         shape_text(std::vector<std::uint64_t>(part.shape.begin() + 1, part.shape.end()));
}

// Why `part` cannot be joined to `first`: a property of first and the same of part. Empty if it
// can.
std::pair<std::string, std::string> difference(const Part& first, const Part& part) {
  if (first.format != part.format) return {std::string(first.format), std::string(part.format)};
  if (first.dtype != part.dtype) return {first.dtype.name(), part.dtype.name()};
  if (first.swapped != part.swapped) return {byte_order(first.swapped), byte_order(part.swapped)};
  if (first.shape.size() != part.shape.size() ||
      !std::equal(first.shape.begin() + 1, first.shape.end(), part.shape.begin() + 1)) {
    return {row_text(first), row_text(part)};
  }
  const bool either = first.storage == Storage::kEither || part.storage == Storage::kEither;
  if (!either && first.storage != part.storage) {
    return {order_name(first.storage), order_name(part.storage)};
  }
  return {};
}

void require_agreement(const Part& first, const Part& part) {
  for (const Part* one : {&first, &part}) {
    if (!one->shape.empty()) continue;
    throw Error(ErrorKind::kFormat, "open", "an array of shape () has no axis to join along")
        .in(one->segment.path)
        .hint("open it by itself");
  }
  const auto [wanted, found] = difference(first, part);
  if (wanted.empty() && found.empty()) return;
  throw Error(ErrorKind::kFormat, "open",
              "has " + found + ", but " + visible(first.segment.path) + " has " + wanted)
      .in(part.segment.path)
      .hint("files of one array must agree in everything but their number of rows");
}

}  // namespace

Layout read_layout(const std::vector<std::string>& given, const FormatOptions& options) {
  std::vector<std::string> paths;
  for (const std::string& path : given) {
    const std::vector<std::string> files = dataset_files(path);
    paths.insert(paths.end(), files.begin(), files.end());
    if (files.empty()) paths.push_back(path);
  }
  if (paths.empty()) throw Error(ErrorKind::kInvalid, "open", "no files were given");
  const bool alone = paths.size() == 1;
  Part first = read_part(paths[0], options, alone);
  Layout layout;
  layout.format = first.format;
  layout.dtype = first.dtype;
  layout.swapped = first.swapped;
  layout.shape = first.shape;
  layout.row_bytes = first.row_bytes;
  append(layout, first);
  for (std::size_t i = 1; i < paths.size(); ++i) {
    Part part = read_part(paths[i], options, alone);
    require_agreement(first, part);
    // The first part that fixes a storage order decides it.
    if (first.storage == Storage::kEither) first = part;
    append(layout, std::move(part));
  }
  layout.fortran = first.storage == Storage::kFortran;
  if (!layout.shape.empty()) layout.shape[0] = layout.rows;
  return layout;
}

void use_disk_cache(Layout& layout, const std::string& cache) {
  if (cache.empty()) return;
  (void)parse_disk_cache(cache);
  for (const Segment& segment : layout.segments) {
    if (segment.remote) continue;
    throw Error(ErrorKind::kInvalid, "open", "a cache on disk is for URLs, and this is a file")
        .in(segment.path)
        .hint("leave out the folder: a size alone, as in \"64MiB\", is a cache in memory");
  }
  layout.disk_cache = cache;
}

Layout Layout::flattened() const {
  Layout flat = *this;
  const std::uint64_t row_items = row_bytes / dtype.size;
  flat.rows = rows * row_items;
  flat.shape = {flat.rows};
  flat.row_bytes = dtype.size;
  flat.fortran = false;
  for (Segment& segment : flat.segments) {
    segment.first_row *= row_items;
    segment.rows *= row_items;
  }
  for (Stretch& stretch : flat.stretches) {
    stretch.first_row *= row_items;
    stretch.rows *= row_items;
  }
  return flat;
}

void Layout::spell_out_stretches() {
  if (!stretches.empty()) return;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    stretches.push_back(
        {segment.first_row, segment.rows, segment.data_offset, static_cast<std::uint32_t>(i)});
  }
}

}  // namespace evenkeel
