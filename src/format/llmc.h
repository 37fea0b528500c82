// Token shards of llm.c and modded-nanogpt: a header of 256 int32, then the tokens. See
// docs/formats.md.
#pragma once

#include <string_view>

#include "format/token_layout.h"
#include "format/token_part.h"

namespace evenkeel {

// Whether a file that begins with these bytes is a token shard of llm.c or another of its files.
bool is_llmc(std::string_view head);

// `head` is the beginning of the file. Throws Error (kFormat, kInvalid).
TokenPart read_llmc(const Source& source, std::string_view head, const TokenFormatOptions& options);

}  // namespace evenkeel
