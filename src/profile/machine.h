// What a report says about where and when it was made.
#pragma once

#include <chrono>
#include <string>

#include "evenkeel/profile.h"

namespace evenkeel {

// Kernel, processors, memory, and the readahead of the disk that `path` lies on.
void describe_machine(ProfileReport& report, const std::string& path);

std::string utc(std::chrono::system_clock::time_point time);  // "2026-11-15T11:20:00Z"

}  // namespace evenkeel
