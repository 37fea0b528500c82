#include "profile/chart.h"

#include <algorithm>
#include <cmath>

#include "profile/plot_path.h"

namespace evenkeel {
namespace {

constexpr auto kUnknown = ProfileSample::kUnknown;

template <typename Value>
std::vector<Point> points_of(const Frame& frame, const ProfileRun& run, Value value) {
  std::vector<Point> points;
  points.reserve(run.samples.size() + 1);
  for (const ProfileSample& sample : run.samples) {
    points.push_back({frame.x(sample.seconds), frame.y(static_cast<double>(value(sample)))});
  }
  // One sample alone would have no width.
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

// Each layer reaches down to the floor, the next is painted over it: half as many points as bands.
void draw_stack(SvgText& svg, const Frame& frame, const ProfileRun& run) {
  const auto any = [&](Counter kind) {
    return std::ranges::any_of(run.samples, [&](const ProfileSample& s) { return s.*kind > 0; });
  };
  const auto total =
      points_of(frame, run, [](const ProfileSample& s) { return s.anon + s.file + s.shmem; });
  const auto kept = extremes(total, frame.column);
  if (any(&ProfileSample::shmem)) svg.path("shmem", stack_area(frame, total, kept));
  if (any(&ProfileSample::file)) {
    const auto top = points_of(frame, run, [](const ProfileSample& s) { return s.anon + s.file; });
    svg.path("file", stack_area(frame, top, kept));
  }
  if (any(&ProfileSample::anon)) {
    const auto top = points_of(frame, run, [](const ProfileSample& s) { return s.anon; });
    svg.path("anon", stack_area(frame, top, kept));
  }
}

// A line for each stretch of samples that know it.
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

// Rates over stretches of at least two columns: sample by sample they are mostly noise.
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
      kinds.over |= report.budget && sample.memory() > *report.budget;
    }
  }
  return kinds;
}

void draw_grid(SvgText& svg, const Frame& frame, const std::vector<Tick>& ticks, bool labels) {
  for (const Tick& tick : ticks) {
    const double y = frame.y(tick.value);
    svg.line(tick.value == 0 ? "floor" : "grid", 0, y, frame.width, y);
    if (labels) svg.words("tick right", -8, y + 4, tick.label);
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
  if (std::ranges::any_of(run.samples, over)) {
    const auto memory = points_of(frame, run, [](const ProfileSample& s) { return s.memory(); });
    // An inner picture that ends at the line cuts off what is beneath it.
    svg.open("svg width=\"" + tenths(frame.width + 2) + "\" height=\"" + tenths(line) + "\"");
    svg.path("over", area_of(thinned(memory, frame.column), frame.height));
    svg.close("svg");
  }
  svg.line("under", 0, line, frame.width, line);  // for the line to stand out on every colour
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
