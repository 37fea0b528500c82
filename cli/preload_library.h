// The library that `evenkeel guard` preloads into a program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/unpack_library.h"

namespace evenkeel::cli {

struct PreloadSearch {
  std::string given;                // what EVENKEEL_GUARD_LIBRARY says; empty: it is not set
  std::string_view inside;          // the library's bytes, if the tool carries them
  std::vector<UnpackPlace> places;  // where to unpack them
  std::string tool_folder;
};

// Its path: what EVENKEEL_GUARD_LIBRARY says. Else, if the tool carries the library, the path it is
// unpacked to and no other: the tool may have been downloaded to a folder that others write to.
// Else beside the tool, or where it is installed. Throws Error (kInvalid) when it is not there, or
// when its path cannot be in LD_PRELOAD.
std::string find_preload_library();
std::string find_preload_library(const PreloadSearch& search);

// "LD_PRELOAD=..." and "ASAN_OPTIONS=...", with what is there already kept. A program that was
// built with AddressSanitizer refuses to run if another library is loaded first, unless its options
// say that it may.
std::vector<std::string> preload_variables(const std::string& library);

}  // namespace evenkeel::cli
