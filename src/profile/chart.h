// The charts of the picture: memory, and what is drawn over and beneath it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "evenkeel/profile.h"
#include "profile/axis.h"
#include "profile/svg_text.h"

namespace evenkeel {

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
// Over the memory: what is above the line, and the line.
void draw_budget(SvgText& svg, const Frame& frame, const ProfileRun& run, std::uint64_t budget);
// How fast a counter rises, a second.
using Counter = std::uint64_t ProfileSample::*;
double most_rate(const Frame& frame, const ProfileRun& run, Counter counter);
void draw_rate(SvgText& svg, const Frame& frame, const ProfileRun& run, Counter counter);

}  // namespace evenkeel
