// available_memory() of budget.h, with a parameter for tests.
#pragma once

#include <string>

#include "evenkeel/budget.h"

namespace evenkeel {

// All files are looked up below `root`: /proc/meminfo, /proc/self/cgroup, the cgroup mounts.
AvailableMemory available_memory_below(const std::string& root);

}  // namespace evenkeel
