// When to count cached pages and how much to release. Only arithmetic, no system calls.
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
  std::uint64_t trigger;  // releasing begins here
  std::uint64_t target;   // releasing ends here
  std::uint64_t slack;    // how far memory may exceed the budget for a moment
};

using Seconds = std::chrono::duration<double>;

// How long the evictor may sleep. Until it wakes, memory must not exceed the trigger by more than
// half the slack. A program that was active within the last second is assumed to fetch at the speed
// of a fast disk, an idle program to begin with 1 GB/s.
inline Seconds time_to_sleep(const Thresholds& thresholds, std::uint64_t estimate, bool active) {
  constexpr double kActive = 8e9, kIdle = 1e9;  // bytes per second
  constexpr Seconds kLeast{0.001}, kMost{0.1};
  const std::uint64_t end = thresholds.trigger + thresholds.slack / 2;
  const double room = estimate < end ? static_cast<double>(end - estimate) : 0;
  return std::clamp(Seconds(room / (active ? kActive : kIdle)), kLeast, kMost);
}

}  // namespace evenkeel
