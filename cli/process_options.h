// Options of the commands that watch a process: one they start, or one that runs already.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

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

}  // namespace evenkeel::cli
