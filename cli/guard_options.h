// What `evenkeel guard` was asked for.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/profile_outputs.h"
#include "evenkeel/guard.h"

namespace evenkeel::cli {

struct GuardCommandOptions {
  std::vector<std::string> command;
  std::optional<pid_t> pid;
  GuardOptions guard;
  std::vector<std::string> files;       // patterns of what is governed; empty: all
  std::uint64_t least_bytes = 1 << 20;  // of a governed mapping
  ProfileOutputs outputs;
  double seconds = 0;  // with pid: how long; 0: until it ends
  bool live = true;
};

}  // namespace evenkeel::cli
