// The library that `evenkeel guard` preloads into a program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/unpack_library.h"

namespace evenkeel::cli {

struct PreloadSearch {
  std::string given;                // the value of EVENKEEL_GUARD_LIBRARY; empty: not set
  std::string_view inside;          // the library's bytes, if the tool carries them
  std::vector<UnpackPlace> places;  // where to unpack them
  std::string tool_folder;
};

// Returns the path of the library. EVENKEEL_GUARD_LIBRARY has precedence. Otherwise, if the tool
// carries the library, it is unpacked and only that copy is used: the tool may have been downloaded
// to a folder that others can write to. Otherwise the library is beside the tool, or where it is
// installed. Throws Error (kInvalid) if it is not found, or if its path cannot be in LD_PRELOAD.
std::string find_preload_library();
std::string find_preload_library(const PreloadSearch& search);

// "LD_PRELOAD=..." and "ASAN_OPTIONS=...", with their current values appended. A program built with
// AddressSanitizer refuses to run if another library is loaded first, unless its options allow it.
std::vector<std::string> preload_variables(const std::string& library);

}  // namespace evenkeel::cli
