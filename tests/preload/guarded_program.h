// For tests: a program (program.c) that runs with the guard's library preloaded and executes
// commands, one per line.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/fd.h"
#include "process_guard/shared_table.h"

namespace evenkeel {

class GuardedProgram {
 public:
  struct Options {
    std::string program = EVENKEEL_PRELOAD_PROGRAM;
    std::string preload = EVENKEEL_PRELOAD_LIBRARY;
    std::string errors;                      // a file for its stderr; empty: that of the test
    std::function<void()> before_exec = {};  // in the child
  };
  // `variable` is "EVENKEEL_GUARD=...", or empty for none.
  explicit GuardedProgram(const std::string& variable) : GuardedProgram(variable, Options()) {}
  GuardedProgram(const std::string& variable, const Options& options) {
    int to[2], from[2];
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) {
      throw std::runtime_error("pipe");
    }
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(to[0], 0);
      ::dup2(from[1], 1);
      if (!options.errors.empty()) {
        ::dup2(::open(options.errors.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666), 2);
      }
      ::setenv("LD_PRELOAD", options.preload.c_str(), 1);
      if (!variable.empty()) ::putenv(const_cast<char*>(variable.c_str()));
      if (options.before_exec) options.before_exec();
      ::execl(options.program.c_str(), options.program.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = Fd(to[1]);
    from_ = Fd(from[0]);
  }
  GuardedProgram(const GuardedProgram&) = delete;
  ~GuardedProgram() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }

  void tell(const std::string& line) {
    const std::string text = line + "\n";
    if (::write(to_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("cannot tell: " + line);
    }
  }
  std::string answer() {
    std::string line;
    for (char c; ::read(from_.get(), &c, 1) == 1;) {
      if (c == '\n') return line;
      line += c;
    }
    throw std::runtime_error("the program has ended; it said: " + line);
  }
  std::string ask_text(const std::string& line) {
    tell(line);
    return answer();
  }
  // Words and numbers. Numbers are sent in hexadecimal.
  template <class... Words>
  std::uint64_t ask(const Words&... words) {
    std::ostringstream line;
    line << std::hex;
    ((line << words << ' '), ...);
    const std::string text = ask_text(line.str());
    std::size_t used = 0;
    std::uint64_t number = 0;
    try {
      number = std::stoull(text, &used, 16);
    } catch (const std::exception&) {
    }
    if (used == 0 || used != text.size()) {
      throw std::runtime_error(line.str() + "was answered: " + text);
    }
    return number;
  }
  std::uint64_t map(const std::string& path, std::uint64_t length, int prot = PROT_READ,
                    int flags = MAP_SHARED, std::uint64_t offset = 0, std::uint64_t at = 0) {
    return ask("map", path, length, offset, prot, flags, at);
  }

  // Returns the exit code, or 256 + the signal.
  int wait() {
    int status = 0;
    to_.reset();
    if (::waitpid(pid_, &status, 0) != pid_) throw std::runtime_error("waitpid");
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
  }
  int exit(int code = 0) {
    std::ostringstream line;
    line << "exit " << std::hex << code;
    tell(line.str());
    return wait();
  }

 private:
  pid_t pid_ = -1;
  Fd to_, from_;
};

}  // namespace evenkeel
