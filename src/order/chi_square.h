// How far counts lie from uniform, for tests. The orders are pure functions of fixed seeds, so
// these tests give the same answer on every run.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace evenkeel {

// Standard deviations from what uniform counts would give (Wilson and Hilferty): within 4.5 is
// luck, far above is biased, far below is too even to be random.
inline double chi_square_z(const std::vector<std::uint64_t>& counts) {
  const auto total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  const double expected = static_cast<double>(total) / static_cast<double>(counts.size());
  double chi = 0;
  for (const auto count : counts) {
    const double off = static_cast<double>(count) - expected;
    chi += off * off / expected;
  }
  const double freedom = static_cast<double>(counts.size() - 1);
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(chi / freedom) - (1 - spread)) / std::sqrt(spread);
}

inline constexpr double kLuck = 4.5;

}  // namespace evenkeel
