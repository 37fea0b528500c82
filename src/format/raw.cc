#include "format/raw.h"

#include <utility>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

Error senseless(const Source& source, const FormatOptions& options, const std::string& problem) {
  return Error(ErrorKind::kInvalid, "open", "shape " + shape_text(options.shape) + problem)
      .in(source.path);
}

// The told shape with its first axis still open (0) where that is for the file to say.
std::vector<std::uint64_t> told_shape(const Source& source, const FormatOptions& options) {
  std::vector<std::uint64_t> shape;
  for (std::size_t axis = 0; axis < options.shape.size(); ++axis) {
    const std::int64_t length = options.shape[axis];
    if (length < (axis == 0 ? -1 : 0)) {
      throw senseless(source, options, " has a negative axis")
          .hint("only the first axis may be -1: as many rows as the file holds");
    }
    shape.push_back(length < 0 ? 0 : static_cast<std::uint64_t>(length));
  }
  if (shape.empty()) shape.push_back(0);
  return shape;
}

std::uint64_t rows_in_file(const Source& source, const FormatOptions& options,
                           std::uint64_t row_bytes) {
  const std::uint64_t bytes = source.identity.size - options.offset;
  const std::uint64_t odd = bytes % row_bytes;
  if (odd == 0) return bytes / row_bytes;
  const std::string row = options.shape.size() > 1 ? "rows" : "elements";
  throw Error(ErrorKind::kFormat, "open",
              with_commas(bytes) + " bytes from offset " + with_commas(options.offset) +
                  " are not whole " + row + ": " + with_commas(bytes / row_bytes) + " of " +
                  with_commas(row_bytes) + " bytes (" + options.dtype->name() + "), and " +
                  with_commas(odd) + " bytes left over")
      .in(source.path)
      .at(source.identity.size - odd)
      .hint("another dtype, shape or offset may be meant, or the file is cut off");
}

}  // namespace

Part read_raw(const Source& source, const FormatOptions& options, bool alone) {
  const DType dtype = *options.dtype;
  const std::uint64_t file_bytes = source.identity.size;
  if (options.offset > file_bytes) {
    throw Error(ErrorKind::kInvalid, "open",
                "offset " + with_commas(options.offset) + " lies beyond the end: the file has " +
                    with_commas(file_bytes) + " bytes")
        .in(source.path);
  }
  const bool open_ended = options.shape.empty() || options.shape[0] == -1;
  if (!open_ended && !alone) {
    throw senseless(source, options, " fixes the rows, but there are several files")
        .hint("make the first axis -1: each file then gives as many rows as it holds");
  }
  std::vector<std::uint64_t> shape = told_shape(source, options);
  auto size = measure(shape, dtype.size);
  if (size && size->row_bytes == 0) throw senseless(source, options, ": its rows hold no bytes");
  if (size && open_ended) {
    shape[0] = rows_in_file(source, options, size->row_bytes);
    size = measure(shape, dtype.size);
  }
  if (!size) throw senseless(source, options, " of " + dtype.name() + " is over 2^63-1 bytes");
  if (size->bytes > file_bytes - options.offset) {
    throw senseless(source, options,
                    " of " + dtype.name() + " needs " + with_commas(size->bytes) +
                        " bytes from offset " + with_commas(options.offset) + ", the file has " +
                        with_commas(file_bytes) + ": " +
                        with_commas(size->bytes - (file_bytes - options.offset)) + " too few")
        .hint("a first axis of -1 takes the rows that are there");
  }
  return {
      "raw", dtype,           needs_swap(dtype, options.big_endian),     storage_of(shape, false),
      shape, size->row_bytes, source.segment(options.offset, size->rows)};
}

}  // namespace evenkeel
