// Files that no format claims.
#pragma once

#include <string_view>

#include "evenkeel/error.h"
#include "format/source.h"

namespace evenkeel {

// The error for a file of no known format: how it begins, which formats are known, and what to do.
// Names ZIP, HDF5 and other formats that users often try.
Error unknown_format(const Source& source, std::string_view head);

// Throws Error (kFormat) when a file that should hold bare tokens begins like one of those formats.
void refuse_foreign_format(const Source& source, std::string_view head);

}  // namespace evenkeel
