// The library that `evenkeel guard` preloads into a program.
#pragma once

#include <string>
#include <vector>

namespace evenkeel::cli {

// Its path: beside the tool, or where it is installed, or what EVENKEEL_GUARD_LIBRARY says. Throws
// Error (kInvalid) when it is not there, or when its path cannot be in LD_PRELOAD.
std::string find_preload_library();

// "LD_PRELOAD=..." and "ASAN_OPTIONS=...", with what is there already kept. A program that was
// built with AddressSanitizer refuses to run if another library is loaded first, unless its options
// say that it may.
std::vector<std::string> preload_variables(const std::string& library);

}  // namespace evenkeel::cli
