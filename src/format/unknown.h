// Files that no format claims.
#pragma once

#include <string_view>

#include "evenkeel/error.h"
#include "format/source.h"

namespace evenkeel {

// Says what was found, what is known and what to do; names the formats that are easily mistaken.
Error unknown_format(const Source& source, std::string_view head);

}  // namespace evenkeel
