// Files of no known format.
#pragma once

#include <string_view>

#include "evenkeel/error.h"
#include "format/source.h"

namespace evenkeel {

// The error for a file of no known format. It shows the first bytes, the known formats and what to
// do. It recognizes HDF5, Parquet and other formats that users often try.
Error unknown_format(const Source& source, std::string_view head);

// Throws Error (kFormat) if a file that should hold bare tokens begins like one of those formats.
void refuse_foreign_format(const Source& source, std::string_view head);

}  // namespace evenkeel
