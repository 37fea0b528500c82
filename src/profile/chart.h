// The charts of the picture: axes, paths with few points, memory, the budget and rates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/profile.h"
#include "profile/svg_text.h"

namespace evenkeel {

struct Tick {
  double value;
  std::string label;
};

// Ticks from 0 to at most `most` in about `wanted` round steps. Sizes step by powers of two
// ("128 MiB"), counts by 1, 2 or 5 times a power of ten ("1,000"), times as clocks do ("30 s",
// "1:30" minutes, "1:30 h").
std::vector<Tick> size_ticks(double most, int wanted);
std::vector<Tick> count_ticks(double most, int wanted);
std::vector<Tick> time_ticks(double most, int wanted);

struct Point {
  double x, y;  // in pixels, y downwards
};

// The indexes of the lowest and the highest point in each column of `width` pixels, in order.
// `points` must be sorted by x.
std::vector<std::size_t> extremes(const std::vector<Point>& points, double width);

// The points of extremes().
std::vector<Point> thinned(const std::vector<Point>& points, double width);

// An SVG path such as "M1 2l.5-3…": relative, rounded to a tenth of a pixel, without points that
// lie on the line between their neighbours.
std::string path_of(const std::vector<Point>& points);

// The area between the points and y = `floor`, as a closed path.
std::string area_of(std::vector<Point> points, double floor);

// Rounds to a tenth: "1", "-.5", "12.3".
std::string tenths(double value);

// A plot. Its origin is its upper left corner. Runs that are compared use equal frames.
struct Frame {
  double width = 0, height = 0;  // pixels
  double seconds = 1, most = 1;  // at the right and upper edges
  double column = 1;             // width in pixels of a column in which two points are enough

  double x(double at_seconds) const { return drawable(at_seconds / seconds * width); }
  double y(double value) const { return drawable(height - value / most * height); }

 private:
  // Times and sizes may be anything, even NaN; coordinates must be finite.
  static double drawable(double place) {
    constexpr double kFarOut = 1e5;
    return std::isnan(place) ? 0 : std::clamp(place, -kFarOut, kFarOut);
  }
};

// The kinds that the legend has to explain.
struct KindsDrawn {
  bool anon = false, file = false, shmem = false, cache = false, over = false;
};
KindsDrawn kinds_of(const ProfileReport& report);

enum class PlotLabels : std::uint8_t { kNone, kShown };
void draw_grid(SvgText& svg, const Frame& frame, const std::vector<Tick>& ticks, PlotLabels labels);
void draw_times(SvgText& svg, const Frame& frame, int wanted);
void draw_memory(SvgText& svg, const Frame& frame, const ProfileRun& run);
// Draws over the memory: hatches what is above the budget, and adds the line of the budget.
void draw_budget(SvgText& svg, const Frame& frame, const ProfileRun& run, std::uint64_t budget);
// Rates of a counter are per second.
using Counter = std::uint64_t ProfileSample::*;
double most_rate(const Frame& frame, const ProfileRun& run, Counter counter);
void draw_rate(SvgText& svg, const Frame& frame, const ProfileRun& run, Counter counter);

}  // namespace evenkeel
