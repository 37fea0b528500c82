// What `evenkeel profile` was asked for.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/profile_outputs.h"

namespace CLI {
class App;
}

namespace evenkeel::cli {

// A process that runs already, instead of a command.
struct ProcessOptions {
  std::optional<pid_t> pid;
  double seconds = 0;  // how long; 0: until it ends
  bool live = true;    // a line at the foot of the terminal; for commands, too
};
// --pid, --seconds, --no-live. `what` is done to it: "Watch". `options` must outlive `app`.
void add_process_options(CLI::App& app, ProcessOptions& options, const std::string& what);
// One of the two is needed. Throws CLI::ValidationError.
void refuse_command_and_process(const std::string& name, const std::vector<std::string>& command,
                                const ProcessOptions& process);

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

// "10ms", "0.5s", "250us". Throws Error (kInvalid).
std::chrono::nanoseconds parse_interval(const std::string& text);
// "30", "0.5": more than 0. Throws Error (kInvalid).
double parse_seconds(const std::string& text);
// A number that a process can have. Throws Error (kInvalid).
pid_t parse_pid(const std::string& text);
// "1MiB/min", "64KiB/s", "1GiB/h" as bytes a minute. Throws Error (kInvalid).
double parse_slope(const std::string& text);

}  // namespace evenkeel::cli
