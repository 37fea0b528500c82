#include "profile/axis.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

template <typename Label>
std::vector<Tick> ticks(double most, double step, Label label) {
  std::vector<Tick> all;
  // A little more than `most`, for a step that fits exactly but for rounding.
  for (int i = 0; i * step <= most * (1 + 1e-9); ++i) all.push_back({i * step, label(i * step)});
  return all;
}

// The least of 1, 2, 5 times a power of ten that is not below `least`.
double decimal_step(double least) {
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

// A sum of sizes may be 2^64 and more.
std::uint64_t whole(double value) {
  return value < 0x1p64 ? static_cast<std::uint64_t>(value) : UINT64_MAX;
}

// "1:05" of 65 and 60.
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

}  // namespace evenkeel
