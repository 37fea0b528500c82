// Files that no format claims.
#pragma once

#include <string_view>

#include "evenkeel/error.h"
#include "format/source.h"

namespace evenkeel {

// Says what was found, what is known and what to do; names the formats that are easily mistaken.
Error unknown_format(const Source& source, std::string_view head);

// Throws Error (kFormat) when a file that should hold bare tokens begins like something that is
// easily mistaken for them.
void refuse_stranger(const Source& source, std::string_view head);

}  // namespace evenkeel
