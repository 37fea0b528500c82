// Token files of Megatron: a .bin with bare tokens, and an .idx that says where its sequences lie.
// See docs/formats.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/index_numbers.h"
#include "format/source.h"
#include "format/token_layout.h"
#include "format/token_part.h"

namespace evenkeel {

// Whether a file that begins with these bytes is an .idx.
bool is_megatron_index(std::string_view head);

// Checks the index against the .bin through a small window (see for_each_checked): the sequences
// must be contiguous and fill the file. Throws Error (kFormat, kInvalid, kSystem).
TokenPart read_megatron(const Source& index, const std::string& bin_path,
                        const TokenFormatOptions& options);

// The lengths of the sequences of an index, one after another.
class MegatronLengths {
 public:
  // Throws Error (kFormat, kSystem).
  explicit MegatronLengths(const std::string& index_path);
  std::uint64_t size() const { return sequences_; }
  std::uint32_t next();
  void rewind(std::uint64_t sequence);  // `next` then returns the length of this sequence

 private:
  const Source source_;
  std::uint64_t sequences_ = 0;
  std::optional<IndexNumbers<std::int32_t>> numbers_;
};

}  // namespace evenkeel
