// Maps a DType at run time to a C++ type, and reads elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "evenkeel/dtype.h"

namespace evenkeel {

// Calls use(std::type_identity<T>) with the type T of a dtype. Returns a null pointer for 16-bit
// floats, complex numbers and records.
template <class Use>
auto with_element_type(DType dtype, Use use) -> decltype(use(std::type_identity<int>{})) {
  const bool whole = dtype.kind == DTypeKind::kInt;
  if (dtype.kind == DTypeKind::kFloat && dtype.size == 4) return use(std::type_identity<float>{});
  if (dtype.kind == DTypeKind::kFloat && dtype.size == 8) return use(std::type_identity<double>{});
  if (dtype.kind == DTypeKind::kBool) return use(std::type_identity<bool>{});
  if (!whole && dtype.kind != DTypeKind::kUint) return nullptr;
  switch (dtype.size) {
    case 1:
      return whole ? use(std::type_identity<std::int8_t>{})
                   : use(std::type_identity<std::uint8_t>{});
    case 2:
      return whole ? use(std::type_identity<std::int16_t>{})
                   : use(std::type_identity<std::uint16_t>{});
    case 4:
      return whole ? use(std::type_identity<std::int32_t>{})
                   : use(std::type_identity<std::uint32_t>{});
    default:
      return whole ? use(std::type_identity<std::int64_t>{})
                   : use(std::type_identity<std::uint64_t>{});
  }
}

// Reads an element from unaligned memory. In files of bool, as in NumPy, every byte but 0 is true.
template <class T>
T load_element(const std::byte* from) {
  std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T> value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<T>(value);
}

}  // namespace evenkeel
