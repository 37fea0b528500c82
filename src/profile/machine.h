// The facts of a report about where and when it was made.
#pragma once

#include <chrono>
#include <string>

#include "evenkeel/profile.h"

namespace evenkeel {

// Fills in kernel, processors, memory, and the readahead of the disk of `path`.
void describe_machine(ProfileReport& report, const std::string& path);

std::string utc(std::chrono::system_clock::time_point time);  // "2026-11-15T11:20:00Z"

}  // namespace evenkeel
