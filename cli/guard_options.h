// The options of `evenkeel guard`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/profile_report.h"
#include "evenkeel/guard.h"

namespace evenkeel::cli {

struct GuardCommandOptions {
  std::vector<std::string> command;
  GuardOptions guard;
  std::vector<std::string> files;       // patterns of the files to guard; empty: all
  std::uint64_t least_bytes = 1 << 20;  // of a guarded mapping
  ProfileOutputs outputs;
  ProcessOptions process;
};

}  // namespace evenkeel::cli
