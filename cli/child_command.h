// Runs a command without interfering: its input, output, signals and exit code are unchanged.
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
  int exit_code = 0;           // as a shell reports it: 128 + signal
  int signal = 0;              // the signal that killed it, or 0
  std::uint64_t peak_rss = 0;  // of the largest process (ru_maxrss)
  std::string words() const;   // "exit code 0", "killed by signal 9 (SIGKILL)"
};

// While the command runs, signals that would end this process are blocked. Signals that were sent
// to this process alone are passed on to the command; signals from the terminal reach it anyway.
class ChildCommand {
 public:
  // Forks; the child waits for go(). `environment` ("NAME=value") is added to the environment of
  // this process. The process may have other threads, so the child calls only async-signal-safe
  // functions.
  ChildCommand(const std::vector<std::string>& words, const std::vector<std::string>& environment);
  ~ChildCommand();  // kills a child that is still running
  ChildCommand(const ChildCommand&) = delete;
  ChildCommand& operator=(const ChildCommand&) = delete;

  pid_t pid() const { return pid_; }
  // Lets the child execute the command. Throws CannotStart.
  void go();
  // Calls `tick(false)` at every interval, and `tick(true)` once when the command has ended and its
  // counters can still be read.
  Ending wait(std::chrono::nanoseconds interval, const std::function<void(bool ended)>& tick);

 private:
  bool has_ended() const;
  bool reap(Ending& ending);
  void take_signals();

  const std::string name_;
  pid_t pid_ = -1;
  Fd go_, failed_, signals_;
};

// Exit codes as in a shell: 127 if the command does not exist, 126 if it cannot be executed.
struct CannotStart {
  int exit_code;
  std::string message;
};

// Turns SIGINT, SIGTERM and SIGHUP into a flag, for watching a process that is not a child.
class SignalWatch {
 public:
  SignalWatch();
  // Waits for a signal, at most `wait`. Returns whether one came.
  bool came(std::chrono::nanoseconds wait);

 private:
  Fd signals_;
};

}  // namespace evenkeel::cli
