// What `evenkeel profile` was asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/process_options.h"
#include "cli/profile_outputs.h"

namespace evenkeel::cli {

struct ProfileOptions {
  std::vector<std::string> command;
  ProcessOptions process;
  ProfileOutputs outputs;
  std::vector<std::string> files;
  std::chrono::nanoseconds interval = std::chrono::milliseconds(10);
  std::optional<std::uint64_t> budget;
  bool fail_over_budget = false;
  std::optional<double> fail_slope;  // bytes a minute
};

}  // namespace evenkeel::cli
