// Runs this tool as a child process and exchanges lines of text with it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/fd.h"

namespace evenkeel::cli {

// The child's stdin and stdout are one socket; its stderr is that of this process. The destructor
// kills the child and waits for it. The child also asks the kernel to kill it when its parent dies
// (see die_with_parent).
class WorkerProcess {
 public:
  explicit WorkerProcess(const std::string& subcommand);  // throws Error (kSystem)
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  void send(const std::string& line);
  // The next line, or empty after `wait`. Throws Error if the child has ended without one, and
  // Interrupted.
  std::optional<std::string> line(std::chrono::microseconds wait);
  std::string line();  // waits without a limit

 private:
  [[noreturn]] void report_death();

  pid_t pid_ = -1;
  Fd socket_;
  std::string received_;
  std::size_t searched_ = 0;
};

// The child calls this first.
void die_with_parent();

}  // namespace evenkeel::cli
