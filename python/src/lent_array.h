// Memory of a LendingPool as NumPy arrays. It returns to the pool when the last array is destroyed.
#pragma once

#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "array/lending_pool.h"

namespace evenkeel::python {

// Smaller arrays are copied into memory from malloc: whole pages would be a waste.
constexpr std::uint64_t kWorthLending = 64 << 10;

inline nanobind::capsule owner_of(Loan loan) {
  return {new Loan(std::move(loan)),
          [](void* pointer) noexcept { delete static_cast<Loan*>(pointer); }};
}

// For a batch that several arrays own.
template <class Lent>
nanobind::capsule owner_of(std::shared_ptr<Lent> lent) {
  using Owner = std::shared_ptr<Lent>;
  return {new Owner(std::move(lent)),
          [](void* pointer) noexcept { delete static_cast<Owner*>(pointer); }};
}

inline nanobind::capsule owner_of(std::unique_ptr<std::byte[]> bytes) {
  return {bytes.release(),
          [](void* pointer) noexcept { delete[] static_cast<std::byte*>(pointer); }};
}

}  // namespace evenkeel::python
