// The library that `evenkeel guard` puts before a program.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::cli {

// Where it lies: beside the tool, or where it is installed, or where EVENKEEL_GUARD_LIBRARY says.
// Throws Error (kInvalid) where it is not, or under a name that a loader cannot be told.
std::string find_preload_library();

// "LD_PRELOAD=...", with what is there already kept.
std::string preload_variable(const std::string& library);

}  // namespace evenkeel::cli
