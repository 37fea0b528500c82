// Memory of a command, or of a running process, recorded while it runs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/profile.h"

namespace evenkeel::cli {

struct RecordingOptions {
  std::chrono::nanoseconds interval = std::chrono::milliseconds(10);
  std::vector<std::string> files;       // patterns; empty: what it maps or opens
  std::optional<std::uint64_t> budget;  // for the live line
  bool live = true;
  bool keep_files_open = true;  // see FileWatch
};

struct Recorded {
  ProfileRun run;
  int exit_code = 0;
};

// `environment` ("NAME=value") is added to that of this process. Throws CannotStart.
Recorded record_command(const std::vector<std::string>& command,
                        const std::vector<std::string>& environment,
                        const RecordingOptions& options);

// Records until the process ends, a signal comes, or `seconds` have passed; 0: no limit.
ProfileRun record_process(pid_t pid, double seconds, const RecordingOptions& options);

}  // namespace evenkeel::cli
