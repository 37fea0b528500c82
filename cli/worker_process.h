// This tool run once more as a child, spoken with in lines.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/fd.h"

namespace evenkeel::cli {

// The child's stdin and stdout are one socket; its stderr is ours. It is killed, and waited for,
// when this goes; and it asks the kernel to be killed when we die (see die_with_parent).
class WorkerProcess {
 public:
  explicit WorkerProcess(const std::string& subcommand);  // throws Error (kSystem)
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;

  pid_t pid() const { return pid_; }
  void send(const std::string& line);
  // The next line, or empty after `wait`. Throws Error when the child has ended without one, and
  // Interrupted.
  std::optional<std::string> line(std::chrono::microseconds wait);
  std::string line();  // however long it takes

 private:
  [[noreturn]] void report_death();

  pid_t pid_ = -1;
  Fd socket_;
  std::string received_;
  std::size_t searched_ = 0;
};

// In the child, first of all.
void die_with_parent();

}  // namespace evenkeel::cli
