// NPY, versions 1.0, 2.0 and 3.0: NumPy's own format, one array a file. See docs/formats.md.
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
  std::string text;   // the literal as it stands in the file
  bool utf8 = false;  // encoding of the text: UTF-8 in version 3.0, Latin-1 before
};

// Whether a file that begins so claims to be NPY.
bool is_npy(std::string_view head);

// `head` is the beginning of the file. Throws Error (kFormat) with the place in the header.
NpyHeader read_npy_header(const Source& source, std::string_view head);

// The value of `descr`, for callers that know more element types than DType does. Its strings point
// into header.text.
Literal npy_descr(const NpyHeader& header);

// Holds the header against the file's size. A told dtype, which must have the size of the header's,
// takes its place, and big_endian says how such elements are stored.
Part npy_part(const Source& source, const NpyHeader& header, const FormatOptions& options);

}  // namespace evenkeel
