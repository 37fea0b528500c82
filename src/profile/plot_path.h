// Many samples as few points of a path.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace evenkeel {

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

}  // namespace evenkeel
