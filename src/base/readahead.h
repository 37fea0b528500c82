// How far the kernel reads ahead on the device that a file lies on.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace evenkeel {

// In bytes; empty where sysfs, mounted at `sys`, does not tell.
std::optional<std::uint64_t> readahead_of_device(dev_t device, const std::string& sys = "/sys");

// Of the device that a file lies on, with a cautious guess where it does not say.
std::uint64_t readahead_window(dev_t device);

}  // namespace evenkeel
