// When to look and how much to release: arithmetic alone.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "evenkeel/bytes.h"

namespace evenkeel {

struct Thresholds {
  explicit Thresholds(std::uint64_t bytes)
      : budget(bytes),
        trigger(bytes / 10 * 9),
        target(bytes / 10 * 7),
        slack(std::max<std::uint64_t>(bytes / 10, 32_MiB)) {}
  std::uint64_t budget;
  std::uint64_t trigger;  // release begins here,
  std::uint64_t target;   // and goes down to here
  std::uint64_t slack;    // what memory may be above the budget for a moment
};

using Seconds = std::chrono::duration<double>;

// A sleep from which the governor wakes in time, however the program behaves meanwhile: until then
// it must not be further than half the slack past the trigger. A program that was at work within
// the last second may fetch as fast as disks go; one that was idle is allowed 1 GB/s for a start.
inline Seconds time_to_sleep(const Thresholds& lines, std::uint64_t estimate, bool active) {
  constexpr double kActive = 8e9, kIdle = 1e9;  // bytes per second
  constexpr Seconds kLeast{0.001}, kMost{0.1};
  const std::uint64_t end = lines.trigger + lines.slack / 2;
  const double room = estimate < end ? static_cast<double>(end - estimate) : 0;
  return std::clamp(Seconds(room / (active ? kActive : kIdle)), kLeast, kMost);
}

}  // namespace evenkeel
