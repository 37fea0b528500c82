// The type of one element of an array.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "evenkeel/compiler.h"

#pragma GCC visibility push(default)

namespace evenkeel {

enum class DTypeKind : std::uint8_t { kBool, kInt, kUint, kFloat, kBfloat, kComplex, kRecord };

// A kind and a size: bool, int8..int64, uint8..uint64, float16/32/64, bfloat16, complex64/128, or a
// record: a fixed number of opaque bytes. Values in memory always have the machine's byte order.
struct DType {
  DTypeKind kind = DTypeKind::kUint;
  std::uint32_t size = 1;  // bytes of one element, never 0

  // "float32", "f4", "<f4", "|u1", "bool", "bfloat16", "complex64", "V12" (a record of 12 bytes).
  // A leading '>' is rejected: byte order is a property of a file, not of a value. Throws kInvalid.
  static DType parse(std::string_view name);
  std::string name() const;  // "float32", "record[12]", ...

  // The size of the unit whose bytes a change of byte order reverses: half of a complex, 1 for
  // records.
  std::uint32_t swap_unit() const {
    return kind == DTypeKind::kRecord ? 1 : kind == DTypeKind::kComplex ? size / 2 : size;
  }

  template <class T>
  static constexpr DType of() {
    using U = std::remove_cv_t<T>;
    if constexpr (std::is_same_v<U, bool>) return {DTypeKind::kBool, 1};
    if constexpr (std::is_same_v<U, std::complex<float>>) return {DTypeKind::kComplex, 8};
    if constexpr (std::is_same_v<U, std::complex<double>>) return {DTypeKind::kComplex, 16};
    if constexpr (std::is_floating_point_v<U>) return {DTypeKind::kFloat, sizeof(U)};
    if constexpr (std::is_integral_v<U>) {
      return {std::is_signed_v<U> ? DTypeKind::kInt : DTypeKind::kUint, sizeof(U)};
    }
    return {DTypeKind::kRecord, sizeof(U)};
  }

  friend bool operator==(const DType&, const DType&) = default;
};

}  // namespace evenkeel

#pragma GCC visibility pop
