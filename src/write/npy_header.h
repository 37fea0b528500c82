// The header of an NPY file, as NumPy's `save` writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/dtype.h"

namespace evenkeel {

// The dtype as a Python literal: "'<f4'".
std::string npy_descr_text(DType dtype);

// The length of the header does not depend on the number of rows (up to 21 digits), so the header
// of a growing file can be written last.
std::string npy_header_bytes(const std::string& descr, const std::vector<std::uint64_t>& shape);

}  // namespace evenkeel
