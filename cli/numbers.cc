#include "cli/numbers.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/number.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {

std::chrono::nanoseconds parse_interval(const std::string& text) {
  static const std::map<std::string, double> kUnits = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789.eE+-"), text.size());
  const auto number = parse_number<double>(std::string_view(text).substr(0, digits));
  const auto unit = kUnits.find(text.substr(digits));
  if (!number || unit == kUnits.end()) {
    throw Error(ErrorKind::kInvalid, "interval", fmt::format("\"{}\" is no time", text))
        .hint("write it like 10ms, 0.5s or 500us");
  }
  const double nanoseconds = *number * unit->second;
  if (!(nanoseconds >= 1e5 && nanoseconds <= 3.6e12)) {
    throw Error(ErrorKind::kInvalid, "interval",
                fmt::format("{} is not between 100us and 3600s", text));
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds));
}

double parse_seconds(const std::string& text) {
  const auto seconds = parse_number<double>(text);
  if (seconds && *seconds > 0 && *seconds <= 1e8) return *seconds;
  throw Error(ErrorKind::kInvalid, "seconds",
              fmt::format("\"{}\" is not more than 0 and at most 100,000,000", text));
}

pid_t parse_pid(const std::string& text) {
  const auto pid = parse_number<pid_t>(text);
  if (pid && *pid > 0) return *pid;
  throw Error(ErrorKind::kInvalid, "process", fmt::format("\"{}\" is no process number", text))
      .hint("`pgrep -f NAME` finds it");
}

double parse_slope(const std::string& text) {
  static const std::map<std::string, double> kPerMinute = {{"s", 60}, {"min", 1}, {"h", 1.0 / 60}};
  const std::size_t slash = text.find('/');
  const auto unit =
      slash == std::string::npos ? kPerMinute.end() : kPerMinute.find(text.substr(slash + 1));
  if (unit == kPerMinute.end()) {
    throw Error(ErrorKind::kInvalid, "slope", fmt::format("\"{}\" is no size in a time", text))
        .hint("write it like 1MiB/min, 64KiB/s or 1GiB/h");
  }
  return static_cast<double>(parse_size(text.substr(0, slash))) * unit->second;
}

}  // namespace evenkeel::cli
