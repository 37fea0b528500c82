// datatrove's .ds: bare tokens, with an index beside them of where documents end. See
// docs/formats.md.
#pragma once

#include <string>

#include "format/token_layout.h"
#include "format/token_part.h"

namespace evenkeel {

// Reads the whole index, through a small window; it decides between uint16 and uint32. Throws Error
// (kFormat, kInvalid, kSystem).
TokenPart read_datatrove(const std::string& path, const std::string& index_path,
                         const TokenFormatOptions& options);

}  // namespace evenkeel
