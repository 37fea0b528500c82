// Token files of Megatron: a .bin with bare tokens, and an .idx that says where its sequences lie.
// See docs/formats.md.
#pragma once

#include <string>
#include <string_view>

#include "format/token_layout.h"
#include "format/token_part.h"

namespace evenkeel {

// Whether a file that begins with these bytes is an .idx.
bool is_megatron_index(std::string_view head);

// Reads the whole index through a small window and checks it against the .bin: the sequences must
// be contiguous and fill the file. Throws Error (kFormat, kInvalid, kSystem).
TokenPart read_megatron(const Source& index, const std::string& bin_path,
                        const TokenFormatOptions& options);

}  // namespace evenkeel
