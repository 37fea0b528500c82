// Describes a recording in words: how memory developed, and which limits would end the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/profile.h"

namespace evenkeel {

// If memory climbs at the start of a run and then stops climbing: the index of the first sample
// after the climb. 0 for other runs.
std::size_t climb_end(const std::vector<ProfileSample>& samples);

// "climbed 1.9 GiB in the first 2 s, then flat", "flat", "+12.5 MiB/min", "too short to tell".
std::string trend_of(const std::vector<ProfileSample>& samples);

// "flat", "+12.5 MiB/min", "too short to tell". The slope was observed for `seconds`. A tiny change
// in less than a minute is flat: it must not be extrapolated.
std::string slope_words(std::optional<double> bytes_per_minute, double seconds, std::uint64_t peak);

// A kind of memory limit, and what it would do to the program.
struct LimitVerdict {
  std::string name;      // "RSS limit"
  std::string examples;  // systems that set such limits
  std::uint64_t bytes;   // a limit below this ends the program
  std::string effect;    // "ends the job below 2 GiB: ..."
};
// Empty for a program that ended before it was measured.
std::vector<LimitVerdict> limits_of(const ProfileSummary& summary);

// "Memory stayed within the budget of 64 MiB. It reached 12 MiB: flat."
std::string memory_verdict(const ProfileSummary& summary, std::optional<std::uint64_t> budget);

// "1.9 GiB of it are file pages, which the kernel can take back; 210 MiB are the program's own."
std::string reclaimable_words(const ProfileSummary& summary);

}  // namespace evenkeel
