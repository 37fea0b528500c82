#include "profile/slope.h"

#include <algorithm>
#include <cstddef>

namespace evenkeel {
namespace {

constexpr std::size_t kMostPoints = 200;

// Reduces the points to at most kMostPoints means of neighbours. Means of points on a line lie on
// that line. Values are relative to the first, so that a constant stays exactly constant.
std::vector<TimedValue> few(const std::vector<TimedValue>& points) {
  const std::size_t count = std::min(points.size(), kMostPoints);
  std::vector<TimedValue> means(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t begin = points.size() * i / count, end = points.size() * (i + 1) / count;
    for (std::size_t j = begin; j < end; ++j) {
      means[i].seconds += points[j].seconds - points[0].seconds;
      means[i].value += points[j].value - points[0].value;
    }
    means[i].seconds /= static_cast<double>(end - begin);
    means[i].value /= static_cast<double>(end - begin);
  }
  return means;
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace

std::optional<double> median_slope(const std::vector<TimedValue>& points) {
  const std::vector<TimedValue> means = few(points);
  std::vector<double> slopes;
  slopes.reserve(means.size() * means.size() / 2);
  for (std::size_t i = 0; i < means.size(); ++i) {
    for (std::size_t j = i + 1; j < means.size(); ++j) {
      const double seconds = means[j].seconds - means[i].seconds;
      if (seconds > 0) slopes.push_back((means[j].value - means[i].value) / seconds);
    }
  }
  if (slopes.empty()) return std::nullopt;
  return median(slopes) + 0.0;  // no -0
}

}  // namespace evenkeel
