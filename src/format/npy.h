// NPY, versions 1.0, 2.0 and 3.0: NumPy's own format, one array per file. See docs/formats.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/npy_descr.h"
#include "format/part.h"

namespace evenkeel {

struct NpyHeader {
  Element element;
  bool fortran = false;
  std::vector<std::uint64_t> shape;
  std::uint64_t data_offset = 0;
  std::string text;   // the literal, as in the file
  bool utf8 = false;  // encoding of the text: UTF-8 in version 3.0, Latin-1 before
};

// Whether the beginning of a file has the NPY magic.
bool is_npy(std::string_view head);

// `head` is the beginning of the file. Throws Error (kFormat) with the offset in the header.
NpyHeader read_npy_header(const Source& source, std::string_view head);

// The value of `descr`, for callers that know more element types than DType does. Its strings point
// into header.text.
Literal npy_descr(const NpyHeader& header);

// Checks the header against the file's size. options.dtype replaces the header's element type and
// must have its size; options.big_endian is then their byte order.
Part npy_part(const Source& source, const NpyHeader& header, const FormatOptions& options);

}  // namespace evenkeel
