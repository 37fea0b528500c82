// For tests: how far counts are from uniform. Orders are pure functions of fixed seeds, so these
// tests give the same result on every run.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace evenkeel {

// The chi-square statistic of these counts, in standard deviations from what uniform counts would
// give (Wilson and Hilferty). Far above 0: biased. Far below 0: too even to be random.
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

// Deviations up to this are expected by chance.
inline constexpr double kMaxDeviation = 4.5;

}  // namespace evenkeel
