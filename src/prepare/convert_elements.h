// Converts elements to another type, with range checks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/budget.h"
#include "evenkeel/dtype.h"

namespace evenkeel {

// Integers must fit, and floats that become integers must be whole numbers. A float that becomes a
// smaller float is rounded, but must not become infinite. Integers become floats by rounding.
class ElementConverter {
 public:
  // Throws Error (kInvalid) for types that cannot be converted: records, complex, 16-bit floats.
  // The memory of the converted elements is reserved from the budget.
  ElementConverter(DType from, DType to, Budget budget);
  // The result is valid until the next call. Throws Error (kInvalid) that names the first element
  // that does not fit, counted from the first call.
  std::span<const std::byte> operator()(std::span<const std::byte> elements);

 private:
  using Convert = std::size_t (*)(const std::byte* from, std::byte* to, std::size_t count);
  const DType from_, to_;
  Convert convert_ = nullptr;  // null: the types are the same
  std::uint64_t done_ = 0;
  const Budget budget_;
  Reservation share_;
  std::vector<std::byte> out_;
};

}  // namespace evenkeel
