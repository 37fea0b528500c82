#include "profile/chart.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

template <typename Label>
std::vector<Tick> ticks(double most, double step, Label label) {
  std::vector<Tick> all;
  // Allow a little more than `most`, so that rounding does not drop a step that fits exactly.
  for (int i = 0; i * step <= most * (1 + 1e-9); ++i) all.push_back({i * step, label(i * step)});
  return all;
}

// The smallest number that is 1, 2 or 5 times a power of ten and not below `least`.
double decimal_step(double least) {
  least = std::max(least, std::numeric_limits<double>::min());  // steps of 0 would never end
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string short_number(double value) {
  char digits[32];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 6);
  return {digits, end.ptr};
}

// A sum of sizes may be 2^64 or more.
std::uint64_t whole(double value) {
  return value < 0x1p64 ? static_cast<std::uint64_t>(value) : UINT64_MAX;
}

// For example "1:05" for 65 and 60.
std::string pair_of(double value, int unit) {
  const auto rounded = std::llround(std::min(value, 1e15));
  char text[32];
  std::snprintf(text, sizeof text, "%lld:%02lld", rounded / unit, rounded % unit);
  return text;
}

double time_step(double least) {
  if (least <= 10) return decimal_step(least);
  static constexpr std::array kSteps = {15.0,   30.0,   60.0,   120.0,   300.0,   600.0,  900.0,
                                        1800.0, 3600.0, 7200.0, 10800.0, 21600.0, 43200.0};
  for (const double step : kSteps) {
    if (step >= least) return step;
  }
  return 86400 * decimal_step(least / 86400);
}

}  // namespace

std::vector<Tick> size_ticks(double most, int wanted) {
  if (!(most >= 1)) return {{0, "0"}};
  const double step = std::max(1.0, std::exp2(std::round(std::log2(most / wanted))));
  return ticks(most, step,
               [](double value) { return value == 0 ? "0" : format_size(whole(value)); });
}

std::vector<Tick> count_ticks(double most, int wanted) {
  if (!(most > 0)) return {{0, "0"}};
  return ticks(most, decimal_step(most / wanted), [](double value) {
    return value < 1000 ? short_number(value) : with_commas(whole(value));
  });
}

std::vector<Tick> time_ticks(double most, int wanted) {
  if (!(most > 0)) return {{0, "0 s"}};
  return ticks(most, time_step(most / wanted), [most](double value) {
    if (most < 120) return short_number(value) + " s";
    if (most < 7200) return pair_of(value, 60);
    return pair_of(value / 60, 60) + " h";
  });
}

namespace {

struct Dot {  // rounded to tenths of a pixel, so that the relative steps of a path add up
  long x, y;
  Dot operator-(Dot other) const { return {x - other.x, y - other.y}; }
};

Dot dot(Point point) { return {std::lround(point.x * 10), std::lround(point.y * 10)}; }

bool lies_between(Dot a, Dot b, Dot c) {
  const Dot first = b - a, second = c - b;
  return first.x * second.y == first.y * second.x && first.x * second.x + first.y * second.y >= 0;
}

std::vector<Dot> corners(const std::vector<Point>& points) {
  std::vector<Dot> dots;
  for (const Point& point : points) {
    const Dot next = dot(point);
    while (dots.size() >= 2 && lies_between(dots[dots.size() - 2], dots.back(), next)) {
      dots.pop_back();
    }
    dots.push_back(next);
  }
  return dots;
}

std::string in_tenths(long value) {
  const long whole = std::labs(value) / 10, tenth = std::labs(value) % 10;
  std::string text = value < 0 ? "-" : "";
  if (whole != 0 || tenth == 0) text += std::to_string(whole);
  if (tenth != 0) text += "." + std::to_string(tenth);
  return text;
}

void append_number(std::string& path, long value) {
  const std::string text = in_tenths(value);
  const bool apart = text[0] == '-' || path.back() == 'l' || path.back() == 'M';
  if (!apart) path += ' ';
  path += text;
}

void append_dot(std::string& path, Dot step) {
  append_number(path, step.x);
  append_number(path, step.y);
}

}  // namespace

std::vector<std::size_t> extremes(const std::vector<Point>& points, double width) {
  std::vector<std::size_t> kept;
  for (std::size_t begin = 0, end = 0; begin < points.size(); begin = end) {
    const double column = std::floor(points[begin].x / width);
    std::size_t low = begin, high = begin;
    for (; end < points.size() && std::floor(points[end].x / width) == column; ++end) {
      if (points[end].y < points[low].y) low = end;
      if (points[end].y > points[high].y) high = end;
    }
    kept.push_back(std::min(low, high));
    if (low != high) kept.push_back(std::max(low, high));
  }
  return kept;
}

std::vector<Point> thinned(const std::vector<Point>& points, double width) {
  std::vector<Point> kept;
  for (const std::size_t i : extremes(points, width)) kept.push_back(points[i]);
  return kept;
}

std::string path_of(const std::vector<Point>& points) {
  const std::vector<Dot> dots = corners(points);
  if (dots.empty()) return "";
  std::string path = "M";
  append_dot(path, dots[0]);
  if (dots.size() > 1) path += 'l';
  for (std::size_t i = 1; i < dots.size(); ++i) append_dot(path, dots[i] - dots[i - 1]);
  return path;
}

std::string area_of(std::vector<Point> points, double floor) {
  if (points.empty()) return "";
  points.insert(points.begin(), {points.front().x, floor});
  points.push_back({points.back().x, floor});
  return path_of(points) + "z";
}

std::string tenths(double value) { return in_tenths(std::lround(value * 10)); }

namespace {

constexpr auto kUnknown = ProfileSample::kUnknown;

template <typename Value>
std::vector<Point> points_of(const Frame& frame, const ProfileRun& run, Value value) {
  std::vector<Point> points;
  points.reserve(run.samples.size() + 1);
  for (const ProfileSample& sample : run.samples) {
    points.push_back({frame.x(sample.seconds), frame.y(static_cast<double>(value(sample)))});
  }
  // A single sample would have no width.
  if (points.size() == 1) points.push_back({points[0].x + 2, points[0].y});
  return points;
}

std::string stack_area(const Frame& frame, const std::vector<Point>& points,
                       const std::vector<std::size_t>& kept) {
  std::vector<Point> corners;
  corners.reserve(kept.size());
  for (const std::size_t i : kept) corners.push_back(points[i]);
  return area_of(std::move(corners), frame.height);
}

// Each layer reaches down to the floor and the next is painted over it. That takes half as many
// points as bands.
void draw_stack(SvgText& svg, const Frame& frame, const ProfileRun& run) {
  const auto any = [&](Counter kind) {
    return std::ranges::any_of(run.samples, [&](const ProfileSample& s) { return s.*kind > 0; });
  };
  const auto total =
      points_of(frame, run, [](const ProfileSample& s) { return s.anon + s.file + s.shmem; });
  const auto kept = extremes(total, frame.column);
  if (any(&ProfileSample::shmem)) svg.path("shmem", stack_area(frame, total, kept));
  if (any(&ProfileSample::anon)) {
    const auto top = points_of(frame, run, [](const ProfileSample& s) { return s.anon + s.file; });
    svg.path("anon", stack_area(frame, top, kept));
  }
  if (any(&ProfileSample::file)) {  // at the floor, to compare with the line of the page cache
    const auto top = points_of(frame, run, [](const ProfileSample& s) { return s.file; });
    svg.path("file", stack_area(frame, top, kept));
  }
}

// Draws a line for each run of samples in which the page cache is known.
void draw_cache(SvgText& svg, const Frame& frame, const ProfileRun& run) {
  std::string path;
  std::vector<Point> stretch;
  const auto end_stretch = [&] {
    if (stretch.size() == 1) stretch.push_back({stretch[0].x + 2, stretch[0].y});
    path += path_of(thinned(stretch, frame.column));
    stretch.clear();
  };
  for (const ProfileSample& sample : run.samples) {
    if (sample.cache == kUnknown) {
      end_stretch();
    } else {
      stretch.push_back({frame.x(sample.seconds), frame.y(static_cast<double>(sample.cache))});
    }
  }
  end_stretch();
  svg.path("cache", path);
}

// Calls `use` with rates over at least two columns: rates between single samples are mostly noise.
template <typename Use>
void each_rate(const Frame& frame, const ProfileRun& run, Counter counter, Use use) {
  const double least = 2 * frame.column * frame.seconds / frame.width;
  ProfileSample before;
  for (const ProfileSample& sample : run.samples) {
    const bool last = &sample == &run.samples.back();
    const double seconds = sample.seconds - before.seconds;
    if (seconds <= 0 || (seconds < least && !last)) continue;
    const double risen = sample.*counter > before.*counter
                             ? static_cast<double>(sample.*counter - before.*counter)
                             : 0;
    use(before.seconds, sample.seconds, risen / std::max(seconds, least));
    before = sample;
  }
}

}  // namespace

KindsDrawn kinds_of(const ProfileReport& report) {
  KindsDrawn kinds;
  for (const ProfileRun& run : report.runs) {
    for (const ProfileSample& sample : run.samples) {
      kinds.anon |= sample.anon > 0;
      kinds.file |= sample.file > 0;
      kinds.shmem |= sample.shmem > 0;
      kinds.cache |= sample.cache != kUnknown;
      kinds.over |= report.budget && !run.guarded_peak && sample.memory() > *report.budget;
    }
  }
  return kinds;
}

void draw_grid(SvgText& svg, const Frame& frame, const std::vector<Tick>& ticks,
               PlotLabels labels) {
  for (const Tick& tick : ticks) {
    const double y = frame.y(tick.value);
    svg.line(tick.value == 0 ? "floor" : "grid", 0, y, frame.width, y);
    if (labels == PlotLabels::kShown) svg.words("tick right", -8, y + 4, tick.label);
  }
}

void draw_times(SvgText& svg, const Frame& frame, int wanted) {
  for (const Tick& tick : time_ticks(frame.seconds, wanted)) {
    const double x = frame.x(tick.value);
    svg.line("floor", x, frame.height, x, frame.height + 4);
    svg.words("tick middle", x, frame.height + 17, tick.label);
  }
}

void draw_memory(SvgText& svg, const Frame& frame, const ProfileRun& run) {
  draw_stack(svg, frame, run);
  draw_cache(svg, frame, run);
}

void draw_budget(SvgText& svg, const Frame& frame, const ProfileRun& run, std::uint64_t budget) {
  const double line = frame.y(static_cast<double>(budget));
  if (line < 0) return;
  const auto over = [&](const ProfileSample& s) { return s.memory() > budget; };
  if (!run.guarded_peak && std::ranges::any_of(run.samples, over)) {
    const auto memory = points_of(frame, run, [](const ProfileSample& s) { return s.memory(); });
    // An inner svg element that ends at the line clips what is below it.
    svg.open("svg width=\"" + tenths(frame.width + 2) + "\" height=\"" + tenths(line) + "\"");
    svg.path("over", area_of(thinned(memory, frame.column), frame.height));
    svg.close("svg");
  }
  svg.line("under", 0, line, frame.width, line);  // makes the line visible on every colour
  svg.line("budget", 0, line, frame.width, line);
}

double most_rate(const Frame& frame, const ProfileRun& run, Counter counter) {
  double most = 0;
  each_rate(frame, run, counter, [&](double, double, double rate) { most = std::max(most, rate); });
  return most;
}

void draw_rate(SvgText& svg, const Frame& frame, const ProfileRun& run, Counter counter) {
  std::vector<Point> steps;
  each_rate(frame, run, counter, [&](double from, double to, double rate) {
    steps.push_back({frame.x(from), frame.y(rate)});
    steps.push_back({frame.x(to), frame.y(rate)});
  });
  svg.path("rate", area_of(std::move(steps), frame.height));
}

}  // namespace evenkeel
