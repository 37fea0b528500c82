// Sums and products of untrusted numbers, which return nothing on overflow, and rounding.
#pragma once

#include <cstdint>
#include <optional>

namespace evenkeel {

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t by) {
  return value / by + (value % by != 0 ? 1 : 0);
}
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t power_of_two) {
  return value & ~(power_of_two - 1);
}
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t power_of_two) {
  return (value + power_of_two - 1) & ~(power_of_two - 1);
}

}  // namespace evenkeel
