// What one token file contains. read_token_layout joins the parts of several files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/part.h"

namespace evenkeel {

struct TokenPart {
  Part part;                                    // one axis
  std::string note = {};                        // what the format's name does not say: "GPT-2"
  std::optional<std::uint64_t> documents = {};  // if an index counts them
  bool any_dtype = false;                       // it has no tokens, so its dtype is unknown
};

// Little-endian tokens that begin at `offset`.
Part token_part(std::string_view format, const Source& source, DType dtype, std::uint64_t offset,
                std::uint64_t tokens);

bool is_token_dtype(DType dtype);

// Throws Error (kInvalid) if the caller gave a dtype that differs from the file's.
void require_dtype(const Source& source, std::optional<DType> given, DType stored);

// A little-endian number at any alignment.
template <class T>
T load_number(const char* bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return static_cast<T>(value);
}

}  // namespace evenkeel
