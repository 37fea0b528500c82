// How steeply a series rises, told robustly.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace evenkeel {

// Shorter runs do not tell a slope.
inline constexpr std::size_t kFewestSamplesForSlope = 16;
inline constexpr double kShortestSecondsForSlope = 1;

struct TimedValue {
  double seconds, value;
};

// The median of the slopes between all pairs (Theil and Sen), a second. Points lie by time; many
// are first made few (means of neighbours), since the pairs are their square. Empty when no two of
// them differ in time.
std::optional<double> median_slope(const std::vector<TimedValue>& points);

}  // namespace evenkeel
