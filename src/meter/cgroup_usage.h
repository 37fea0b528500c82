// Behind cgroup_usage of meter.h.
#pragma once

#include <string>

#include "evenkeel/meter.h"

namespace evenkeel {

// All files are looked for below `root`, so that tests can bring a tree of their own.
std::optional<CgroupUsage> cgroup_usage_below(const std::string& root, pid_t pid);

}  // namespace evenkeel
