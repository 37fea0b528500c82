// available_memory() of budget.h, with the machine as a parameter.
#pragma once

#include <string>

#include "evenkeel/budget.h"

namespace evenkeel {

// Everything is looked for below `root`: /proc/meminfo, /proc/self/cgroup, the cgroup mounts.
AvailableMemory available_memory_below(const std::string& root);

}  // namespace evenkeel
