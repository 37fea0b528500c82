// A command run as if we were not there: its input, output, signals and exit code are its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace evenkeel::cli {

// How a process ended.
struct Ending {
  int exit_code = 0;           // as a shell gives it: 128 + the signal
  int signal = 0;              // that killed it, or 0
  std::uint64_t peak_rss = 0;  // of the largest process, by the kernel's own mark
  std::string words() const;   // "exit code 0", "killed by signal 9 (SIGKILL)"
};

// Signals that would end or move us are taken in while one lives: those that a person or a program
// sent to us alone are passed on to the command; those of the terminal reach it anyway.
class ChildCommand {
 public:
  // Forks; the child waits. `environment` is added to ours: "NAME=value". The process may have
  // other threads, so the child calls nothing but async-signal-safe functions.
  ChildCommand(const std::vector<std::string>& words, const std::vector<std::string>& environment);
  ~ChildCommand();  // a child that was never let go is killed
  ChildCommand(const ChildCommand&) = delete;
  ChildCommand& operator=(const ChildCommand&) = delete;

  pid_t pid() const { return pid_; }
  // Lets it become the command. Throws CannotStart.
  void go();
  // Calls `tick` at every interval, and a last time, with true, when the command has ended and is
  // still there to be asked.
  Ending wait(std::chrono::nanoseconds interval, const std::function<void(bool ended)>& tick);

 private:
  bool has_ended() const;
  bool reap(Ending& ending);
  void take_signals();

  const std::string name_;
  pid_t pid_ = -1;
  Fd go_, failed_, signals_;
};

// As a shell says it: 127 for a command that is not there, 126 for one that may not be run.
struct CannotStart {
  int exit_code;
  std::string message;
};

// SIGINT, SIGTERM and SIGHUP as a flag, for watching a process that is not ours.
class SignalWatch {
 public:
  SignalWatch();
  // Whether one has come within that time.
  bool came(std::chrono::nanoseconds wait);

 private:
  Fd signals_;
};

}  // namespace evenkeel::cli
