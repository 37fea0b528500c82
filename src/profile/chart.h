// The charts of the picture: axes, paths of few points, and memory with what is drawn over and
// beneath it.
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

// From 0 to at most `most` in about `wanted` round steps. Sizes step by powers of
// two
// ("128 MiB"), counts by 1, 2 or 5 times a power of ten ("1,000"), times as clocks do ("30 s",
// "1:30" minutes, "1:30 h").
std::vector<Tick> size_ticks(double most, int wanted);
std::vector<Tick> count_ticks(double most, int wanted);
std::vector<Tick> time_ticks(double most, int wanted);

struct Point {
  double x, y;  // in pixels, y downwards
};

// The lowest and the highest point of each column of `width` pixels, by their index and in order.
// Points lie by x.
std::vector<std::size_t> extremes(const std::vector<Point>& points, double width);

// The same, as points.
std::vector<Point> thinned(const std::vector<Point>& points, double width);

// "M1 2l.5-3…": relative, to a tenth of a pixel, without points that lie between their neighbours.
std::string path_of(const std::vector<Point>& points);

// Closed along y = `floor`.
std::string area_of(std::vector<Point> points, double floor);

// To a tenth: "1", "-.5", "12.3".
std::string tenths(double value);

// A plot with its own origin, at its upper left. Equal frames compare.
struct Frame {
  double width = 0, height = 0;  // pixels
  double seconds = 1, most = 1;  // at the right and upper edges
  double column = 1;             // pixels in which two points are enough

  double x(double at_seconds) const { return drawable(at_seconds / seconds * width); }
  double y(double value) const { return drawable(height - value / most * height); }

 private:
  // Times and sizes may be anything, also no number at all; places may not.
  static double drawable(double place) {
    constexpr double kFarOut = 1e5;
    return std::isnan(place) ? 0 : std::clamp(place, -kFarOut, kFarOut);
  }
};

// Which kinds the picture has to explain.
struct KindsDrawn {
  bool anon = false, file = false, shmem = false, cache = false, over = false;
};
KindsDrawn kinds_of(const ProfileReport& report);

void draw_grid(SvgText& svg, const Frame& frame, const std::vector<Tick>& ticks, bool labels);
void draw_times(SvgText& svg, const Frame& frame, int wanted);
void draw_memory(SvgText& svg, const Frame& frame, const ProfileRun& run);
// Over the memory: what is above the budget, and the line of the budget.
void draw_budget(SvgText& svg, const Frame& frame, const ProfileRun& run, std::uint64_t budget);
// How fast a counter rises, a second.
using Counter = std::uint64_t ProfileSample::*;
double most_rate(const Frame& frame, const ProfileRun& run, Counter counter);
void draw_rate(SvgText& svg, const Frame& frame, const ProfileRun& run, Counter counter);

}  // namespace evenkeel
