// Token files of datatrove: a .ds file with bare tokens, and beside it an index of where documents
// end. See docs/formats.md.
#pragma once

#include <string>

#include "format/token_layout.h"
#include "format/token_part.h"

namespace evenkeel {

// Reads the whole index through a small window. The index tells whether tokens are uint16 or
// uint32. Throws Error (kFormat, kInvalid, kSystem).
TokenPart read_datatrove(const std::string& path, const std::string& index_path,
                         const TokenFormatOptions& options);

}  // namespace evenkeel
