#include "profile/plot_path.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "profile/test_path.h"

namespace evenkeel {
namespace {

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

// How high a drawn line is at x; NaN where it stands upright or is not.
double height_at(const std::vector<Point>& line, double x) {
  for (std::size_t i = 1; i < line.size(); ++i) {
    const Point &a = line[i - 1], &b = line[i];
    if (a.x < x && x < b.x) return a.y + (b.y - a.y) * (x - a.x) / (b.x - a.x);
  }
  return std::nan("");
}

RC_GTEST_PROP(PathOf, DrawsTheLineThatWasGiven, ()) {
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

TEST(PathOf, LeavesOutWhatLiesBetween) {
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
