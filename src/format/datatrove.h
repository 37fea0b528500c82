// Token files of datatrove: a .ds file with bare tokens, and beside it an index of the ends of
// documents. See docs/formats.md.
#pragma once

#include <string>

#include "format/token_layout.h"
#include "format/token_part.h"

namespace evenkeel {

// Checks the index through a small window (see for_each_checked). Whether tokens are uint16 or
// uint32 follows from the index. Throws Error (kFormat, kInvalid, kSystem).
TokenPart read_datatrove(const std::string& path, const std::string& index_path,
                         const TokenFormatOptions& options);

}  // namespace evenkeel
