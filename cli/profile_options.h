// What `evenkeel profile` was asked for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/profile_outputs.h"

namespace evenkeel::cli {

struct ProfileOptions {
  std::vector<std::string> command;
  std::optional<pid_t> pid;
  ProfileOutputs outputs;
  std::vector<std::string> files;
  std::chrono::nanoseconds interval = std::chrono::milliseconds(10);
  double seconds = 0;  // with pid: how long; 0: until it ends
  std::optional<std::uint64_t> budget;
  bool fail_over_budget = false;
  std::optional<double> fail_slope;  // bytes a minute
  bool live = true;
};

// "10ms", "0.5s", "250us". Throws Error (kInvalid).
std::chrono::nanoseconds parse_interval(const std::string& text);
// "30", "0.5": more than 0. Throws Error (kInvalid).
double parse_seconds(const std::string& text);
// A number that a process can have. Throws Error (kInvalid).
pid_t parse_pid(const std::string& text);
// "1MiB/min", "64KiB/s", "1GiB/h" as bytes a minute. Throws Error (kInvalid).
double parse_slope(const std::string& text);

}  // namespace evenkeel::cli
