// What one token file says; read_token_layout puts parts together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "format/part.h"

namespace evenkeel {

struct TokenPart {
  Part part;                                    // one axis
  std::string note = {};                        // what its format leaves open: "GPT-2"
  std::optional<std::uint64_t> documents = {};  // where an index counts them
  bool any_dtype = false;                       // it holds no tokens and does not say of what type
};

// Little-endian tokens from `offset` on.
Part token_part(std::string_view format, const Source& source, DType dtype, std::uint64_t offset,
                std::uint64_t tokens);

bool is_token_dtype(DType dtype);

// Throws Error (kInvalid) when another dtype is told than the file says.
void require_told(const Source& source, std::optional<DType> told, DType stored);

// A little-endian number, wherever it lies.
template <class T>
T load_number(const char* bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return static_cast<T>(value);
}

}  // namespace evenkeel
