#include "format/raw.h"

#include <utility>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

Error invalid_shape(const Source& source, const FormatOptions& options,
                    const std::string& problem) {
  return Error(ErrorKind::kInvalid, "open", "shape " + shape_text(options.shape) + problem)
      .in(source.path);
}

// The requested shape. Its first axis is 0 if the size of the file determines it.
std::vector<std::uint64_t> requested_shape(const Source& source, const FormatOptions& options) {
  std::vector<std::uint64_t> shape;
  for (std::size_t axis = 0; axis < options.shape.size(); ++axis) {
    const std::int64_t length = options.shape[axis];
    if (length < (axis == 0 ? -1 : 0)) {
      throw invalid_shape(source, options, " has a negative axis")
          .hint("only the first axis may be -1, which means as many rows as the file holds");
    }
    shape.push_back(length < 0 ? 0 : static_cast<std::uint64_t>(length));
  }
  if (shape.empty()) shape.push_back(0);
  return shape;
}

std::uint64_t rows_in_file(const Source& source, const FormatOptions& options,
                           std::uint64_t row_bytes) {
  const std::uint64_t bytes = source.identity.size - options.offset;
  const std::uint64_t remainder = bytes % row_bytes;
  if (remainder == 0) return bytes / row_bytes;
  const std::string row = options.shape.size() > 1 ? "rows" : "elements";
  throw Error(ErrorKind::kFormat, "open",
              with_commas(bytes) + " bytes from offset " + with_commas(options.offset) +
                  " are not whole " + row + ": " + with_commas(bytes / row_bytes) + " of " +
                  with_commas(row_bytes) + " bytes (" + options.dtype->name() + "), and " +
                  with_commas(remainder) + " bytes left over")
      .in(source.path)
      .at(source.identity.size - remainder)
      .hint("check dtype, shape and offset; the file may also be truncated");
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
    throw invalid_shape(source, options, " fixes the number of rows, but there are several files")
        .hint("use -1 as the first axis to read as many rows as each file holds");
  }
  std::vector<std::uint64_t> shape = requested_shape(source, options);
  auto size = measure(shape, dtype.size);
  if (size && size->row_bytes == 0)
    throw invalid_shape(source, options, ": its rows have no bytes");
  if (size && open_ended) {
    shape[0] = rows_in_file(source, options, size->row_bytes);
    size = measure(shape, dtype.size);
  }
  if (!size)
    throw invalid_shape(source, options, " of " + dtype.name() + " is more than 2^63-1 bytes");
  if (size->bytes > file_bytes - options.offset) {
    throw invalid_shape(source, options,
                        " of " + dtype.name() + " needs " + with_commas(size->bytes) +
                            " bytes from offset " + with_commas(options.offset) +
                            ", the file has " + with_commas(file_bytes) + ": " +
                            with_commas(size->bytes - (file_bytes - options.offset)) + " too few")
        .hint("use -1 as the first axis to read as many rows as the file holds");
  }
  return {
      "raw", dtype,           needs_swap(dtype, options.big_endian),     storage_of(shape, false),
      shape, size->row_bytes, source.segment(options.offset, size->rows)};
}

}  // namespace evenkeel
