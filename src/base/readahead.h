// How far the kernel reads ahead on a device.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace evenkeel {

// In bytes; empty if sysfs, mounted at `sys`, does not report it.
std::optional<std::uint64_t> readahead_of_device(dev_t device, const std::string& sys = "/sys");

// The same for this system; if sysfs does not report it, a large value, to be safe.
std::uint64_t readahead_window(dev_t device);

}  // namespace evenkeel
