// The header of an NPY file, just as NumPy's `save` writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/dtype.h"

namespace evenkeel {

// "'<f4'": as a literal of Python.
std::string npy_descr_text(DType dtype);

// Its length does not depend on the number of rows (up to 21 digits): a file can grow, and its
// header be written last.
std::string npy_header_bytes(const std::string& descr, const std::vector<std::uint64_t>& shape);

}  // namespace evenkeel
