// Finds the tokens that separate documents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "evenkeel/dtype.h"

namespace evenkeel {

// Whether a token of this type can be `number`.
inline bool can_hold(DType dtype, std::int64_t number) {
  const bool is_signed = dtype.kind == DTypeKind::kInt;
  if (number < 0 && !is_signed) return false;
  if (dtype.size >= 8) return true;
  const std::int64_t end = std::int64_t{1} << (8 * dtype.size - (is_signed ? 1 : 0));
  return number < end && number >= -end;
}

// Calls `use` with the index of each token that equals `wanted`.
template <class T, class Use>
void find_equal(const std::byte* bytes, std::uint64_t count, std::int64_t wanted, Use use) {
  const auto value = static_cast<T>(wanted);
  if (static_cast<std::int64_t>(value) != wanted) return;  // no token can have this value
  constexpr std::uint64_t kTogether = 64;
  const auto load = [&](std::uint64_t i) {
    T token;
    std::memcpy(&token, bytes + i * sizeof(T), sizeof(T));
    return token;
  };
  std::uint64_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    T any = 0;
    for (std::uint64_t j = 0; j < kTogether; ++j) any |= T(load(i + j) == value);
    if (any == 0) continue;
    for (std::uint64_t j = 0; j < kTogether; ++j) {
      if (load(i + j) == value) use(i + j);
    }
  }
  for (; i < count; ++i) {
    if (load(i) == value) use(i);
  }
}

// Calls `use` with the index of each token that equals `wanted`, in order. The `count` tokens are
// as stored, in the byte order of this machine, and need not be aligned.
template <class Use>
void find_tokens(DType dtype, const std::byte* bytes, std::uint64_t count, std::int64_t wanted,
                 Use use) {
  const bool is_signed = dtype.kind == DTypeKind::kInt;
  switch (dtype.size) {
    case 1:
      return is_signed ? find_equal<std::int8_t>(bytes, count, wanted, use)
                       : find_equal<std::uint8_t>(bytes, count, wanted, use);
    case 2:
      return is_signed ? find_equal<std::int16_t>(bytes, count, wanted, use)
                       : find_equal<std::uint16_t>(bytes, count, wanted, use);
    case 4:
      return is_signed ? find_equal<std::int32_t>(bytes, count, wanted, use)
                       : find_equal<std::uint32_t>(bytes, count, wanted, use);
    default:
      return is_signed ? find_equal<std::int64_t>(bytes, count, wanted, use)
                       : find_equal<std::uint64_t>(bytes, count, wanted, use);
  }
}

}  // namespace evenkeel
