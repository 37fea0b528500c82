// For tests: parses the paths that path_of() in chart.h writes.
#pragma once

#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

#include "profile/chart.h"

namespace evenkeel {

inline std::vector<Point> points_of_path(const std::string& path) {
  std::vector<Point> points;
  const char* at = path.c_str();
  for (bool relative = false; *at != 0 && *at != 'z';) {
    if (*at == 'M' || *at == 'l' || *at == 'L') relative = *at == 'l', ++at;
    char* end;
    const double x = std::strtod(at, &end), y = std::strtod(end, &end);
    if (end == at) break;
    const Point last = points.empty() ? Point{0, 0} : points.back();
    points.push_back(relative ? Point{last.x + x, last.y + y} : Point{x, y});
    at = end;
  }
  return points;
}

}  // namespace evenkeel
