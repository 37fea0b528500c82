#include "cli/process_options.h"

#include <CLI/CLI.hpp>

#include "cli/numbers.h"
#include "cli/options.h"

namespace evenkeel::cli {

void add_process_options(CLI::App& app, ProcessOptions& options, const std::string& what) {
  add_parsed(
      app, "--pid", "N", [&options](const std::string& text) { options.pid = parse_pid(text); },
      what + " a running process instead, until it ends or Ctrl-C");
  add_parsed(
      app, "--seconds", "S",
      [&options](const std::string& text) { options.seconds = parse_seconds(text); },
      "With --pid: for so long");
  app.add_flag("!--no-live", options.live, "No line at the foot of the terminal");
}

void refuse_command_and_process(const std::string& name, const std::vector<std::string>& command,
                                const ProcessOptions& process) {
  if (command.empty() == !process.pid) {
    throw CLI::ValidationError(name, process.pid ? "a command and --pid: one or the other"
                                                 : "which command? -- CMD..., or --pid N");
  }
  if (process.seconds > 0 && !process.pid) {
    throw CLI::ValidationError("--seconds", "goes with --pid; a command runs until it ends");
  }
}

}  // namespace evenkeel::cli
