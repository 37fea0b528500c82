#include "profile/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "profile/test_path.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;

std::vector<std::string> labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> all;
  for (const Tick& tick : ticks) all.push_back(tick.label);
  return all;
}

constexpr double kMiB = 1 << 20;

TEST(SizeTicks, StepByPowersOfTwo) {
  EXPECT_THAT(labels(size_ticks(530 * kMiB, 4)),
              ElementsAre("0", "128 MiB", "256 MiB", "384 MiB", "512 MiB"));
  EXPECT_THAT(labels(size_ticks(2 * 1024 * kMiB, 4)),
              ElementsAre("0", "512 MiB", "1 GiB", "1.5 GiB", "2 GiB"));
  EXPECT_THAT(labels(size_ticks(3, 4)), ElementsAre("0", "1 B", "2 B", "3 B"));
  EXPECT_THAT(labels(size_ticks(0, 4)), ElementsAre("0"));
}

TEST(CountTicks, StepByOneTwoAndFive) {
  EXPECT_THAT(labels(count_ticks(1100, 2)), ElementsAre("0", "1,000"));
  EXPECT_THAT(labels(count_ticks(40, 4)), ElementsAre("0", "10", "20", "30", "40"));
}

TEST(TimeTicks, StepAsClocksDo) {
  EXPECT_THAT(labels(time_ticks(1, 5)),
              ElementsAre("0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1 s"));
  EXPECT_THAT(labels(time_ticks(62, 4)), ElementsAre("0 s", "30 s", "60 s"));
  EXPECT_THAT(labels(time_ticks(400, 4)), ElementsAre("0:00", "2:00", "4:00", "6:00"));
  EXPECT_THAT(labels(time_ticks(7200, 4)),
              ElementsAre("0:00 h", "0:30 h", "1:00 h", "1:30 h", "2:00 h"));
  EXPECT_THAT(labels(time_ticks(0, 4)), ElementsAre("0 s"));
}

TEST(TimeTicks, OfTheLeastNumberEnd) {
  const double least = std::numeric_limits<double>::denorm_min();
  EXPECT_THAT(labels(time_ticks(least, 4)), ElementsAre("0 s"));
  EXPECT_THAT(labels(count_ticks(least, 4)), ElementsAre("0"));
}

using Ticks = std::vector<Tick> (*)(double, int);

void check_spacing(Ticks ticks_of, double most, int wanted) {
  const auto ticks = ticks_of(most, wanted);
  RC_ASSERT(ticks.size() >= 1u);
  RC_ASSERT(ticks.size() <= 2u * static_cast<unsigned>(wanted) + 1);
  RC_ASSERT(ticks[0].value == 0);
  RC_ASSERT(ticks.back().value <= most * (1 + 1e-6));
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    RC_ASSERT(ticks[i].value > ticks[i - 1].value);
    RC_ASSERT(ticks[i].label != ticks[i - 1].label);
  }
}

RC_GTEST_PROP(Ticks, AreFewAndInsideAndHaveDifferentLabels, ()) {
  const double most = std::pow(2.0, *rc::gen::inRange(0, 6200) / 100.0);
  const int wanted = *rc::gen::inRange(1, 10);
  check_spacing(size_ticks, most, wanted);
  check_spacing(count_ticks, most, wanted);
  if (most < 1e8) check_spacing(time_ticks, most, wanted);
}

std::vector<Point> any_points() {
  const auto ys = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 2000));
  std::vector<Point> points;
  double x = 0;
  for (const int y : ys) points.push_back({x += *rc::gen::inRange(0, 30) / 10.0, y / 10.0});
  return points;
}

RC_GTEST_PROP(Thinned, HasAtMostTwoPointsAColumnAndTheirExtremes, ()) {
  const auto points = any_points();
  const double width = *rc::gen::inRange(1, 5);
  std::map<double, std::vector<double>> all, kept;
  for (const Point& point : points) all[std::floor(point.x / width)].push_back(point.y);
  for (const Point& point : thinned(points, width)) {
    kept[std::floor(point.x / width)].push_back(point.y);
  }
  RC_ASSERT(all.size() == kept.size());
  for (const auto& [column, ys] : all) {
    RC_ASSERT(kept[column].size() <= 2u);
    RC_ASSERT(std::ranges::max(ys) == std::ranges::max(kept[column]));
    RC_ASSERT(std::ranges::min(ys) == std::ranges::min(kept[column]));
  }
}

// The y of a drawn line at x. NaN where it is vertical or does not exist.
double height_at(const std::vector<Point>& line, double x) {
  for (std::size_t i = 1; i < line.size(); ++i) {
    const Point &a = line[i - 1], &b = line[i];
    if (a.x < x && x < b.x) return a.y + (b.y - a.y) * (x - a.x) / (b.x - a.x);
  }
  return std::nan("");
}

RC_GTEST_PROP(PathOf, DrawsTheLineThroughThePoints, ()) {
  const auto points = any_points();
  const auto drawn = points_of_path(path_of(points));
  RC_ASSERT(drawn.size() <= points.size());
  if (points.empty()) return;
  RC_ASSERT(std::abs(drawn.front().x - points.front().x) < 0.051);
  RC_ASSERT(std::abs(drawn.back().y - points.back().y) < 0.051);
  for (double x = 0.05; x < points.back().x; x += 0.1) {
    const double want = height_at(points, x), got = height_at(drawn, x);
    if (!std::isnan(want) && !std::isnan(got)) RC_ASSERT(std::abs(want - got) < 0.11);
  }
}

TEST(PathOf, LeavesOutPointsOnAStraightLine) {
  EXPECT_EQ(path_of({{0, 5}, {1, 5}, {2, 5}, {3, 5}, {4, 6}}), "M0 5l3 0 1 1");
  EXPECT_EQ(path_of({{0, 0}, {1, 1}, {2, 2}, {1, 1}}), "M0 0l2 2-1-1");  // turning back is a corner
  EXPECT_EQ(path_of({{1.26, -0.5}}), "M1.3-.5");
  EXPECT_EQ(path_of({}), "");
}

TEST(AreaOf, IsClosedAlongTheFloor) {
  EXPECT_EQ(area_of({{0, 5}, {10, 2}}, 20), "M0 20l0-15 10-3 0 18z");
  EXPECT_EQ(area_of({}, 20), "");
}

}  // namespace

}  // namespace evenkeel
