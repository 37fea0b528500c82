// A robust estimate of the slope of a series.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace evenkeel {

// Shorter runs have no meaningful slope.
inline constexpr std::size_t kFewestSamplesForSlope = 16;
inline constexpr double kShortestSecondsForSlope = 1;

struct TimedValue {
  double seconds, value;
};

// The median of the slopes between all pairs of points (Theil and Sen), per second. Points must be
// sorted by time. Many points are first reduced to means of neighbours, since the number of pairs
// is quadratic. Empty if no two points differ in time.
std::optional<double> median_slope(const std::vector<TimedValue>& points);

}  // namespace evenkeel
