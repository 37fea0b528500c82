// What a recording means, in words: how memory developed, and which limits would end the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/profile.h"

namespace evenkeel {

// Where the climb at the start of a run ends, if memory climbs and then stops climbing: the index
// of the first sample after it. 0 for other runs.
std::size_t climb_end(const std::vector<ProfileSample>& samples);

// "climbed 1.9 GiB in the first 2 s, then flat", "flat", "+12.5 MiB/min", "too short to tell".
std::string trend_of(const std::vector<ProfileSample>& samples);

// "flat", "+12.5 MiB/min", "too short to tell". A slope that was observed for `seconds` is flat
// when it comes to next to nothing: a minute cannot be told from a second.
std::string slope_words(std::optional<double> bytes_per_minute, double seconds, std::uint64_t peak);

// A kind of memory limit, and what it would do to the program.
struct LimitVerdict {
  std::string name;      // "RSS limit"
  std::string examples;  // who sets such limits
  std::uint64_t bytes;   // a limit below this ends the program
  std::string effect;    // "ends the job below 2 GiB: ..."
};
// Empty for a program that ended before it was measured.
std::vector<LimitVerdict> limits_of(const ProfileSummary& summary);

// "Memory stayed within the budget of 64 MiB. It reached 12 MiB: flat."
std::string memory_verdict(const ProfileSummary& summary, std::optional<std::uint64_t> budget);

// "1.9 GiB of it are file pages, which the kernel can take back; 210 MiB are not."
std::string reclaimable_words(const ProfileSummary& summary);

}  // namespace evenkeel
