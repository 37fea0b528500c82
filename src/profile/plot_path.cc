#include "profile/plot_path.h"

#include <algorithm>
#include <cmath>

namespace evenkeel {
namespace {

struct Dot {  // in tenths of a pixel: what is drawn, so that steps add up to it
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

}  // namespace evenkeel
