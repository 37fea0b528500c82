// Megatron's pair: an .idx that says where sequences lie in a .bin of bare tokens. See
// docs/formats.md.
#pragma once

#include <string>
#include <string_view>

#include "format/token_layout.h"
#include "format/token_part.h"

namespace evenkeel {

// Whether a file that begins so claims to be an .idx.
bool is_megatron_index(std::string_view head);

// Reads the whole index, through a small window, and holds it against the .bin: the sequences must
// lie one after the other and fill it. Throws Error (kFormat, kInvalid, kSystem).
TokenPart read_megatron(const Source& index, const std::string& bin_path,
                        const TokenFormatOptions& options);

}  // namespace evenkeel
