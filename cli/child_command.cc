#include "cli/child_command.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "base/visible.h"
#include "cli/descriptor_limit.h"
#include "cli/program_kind.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

using std::chrono::steady_clock;

constexpr std::array kPassedOn = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                  SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};

sigset_t set_of(const auto& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  return set;
}

// The signals stay blocked: after the command has ended, the tool only writes its report.
Fd taken_in(const sigset_t& set) {
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  Fd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) throw Error::system("receive signals", errno);
  return fd;
}

// Whether `fd` becomes readable before `until`.
bool poll_until(int fd, steady_clock::time_point until) {
  const auto left = std::max(until - steady_clock::now(), steady_clock::duration::zero());
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec wait{whole.count(), std::chrono::nanoseconds(left - whole).count()};
  pollfd watched{fd, POLLIN, 0};
  return ::ppoll(&watched, 1, &wait, nullptr) > 0;
}

std::array<Fd, 2> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error::system("make a pipe", errno);
  return {Fd(ends[0]), Fd(ends[1])};
}

// Whether a shell would find this command. execvp returns EACCES for a missing command if one
// folder of PATH cannot be searched.
bool is_there(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return ::access(name.c_str(), F_OK) == 0 || errno == EACCES;  // EACCES: it may exist
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access(((folder.empty() ? "." : folder) + "/" + name).c_str(), F_OK) == 0) return true;
  }
  return false;
}

std::string hint(const std::string& name) {
  const std::string part = missing_part(name);
  if (part.empty()) return "\nhint: check the spelling, and whether it is on PATH";
  return "\nhint: the file exists, but the program that runs it does not: " + part;
}

// The arguments of exec, prepared before fork because the child must not allocate memory.
class Executable {
 public:
  Executable(const std::vector<std::string>& words, const std::vector<std::string>& environment)
      : paths_(places_of(words.front())) {
    for (const std::string& word : words) arguments_.push_back(const_cast<char*>(word.c_str()));
    arguments_.push_back(nullptr);
    script_.push_back(const_cast<char*>("/bin/sh"));
    script_.push_back(nullptr);  // the path
    script_.insert(script_.end(), arguments_.begin() + 1, arguments_.end());
    for (char** pair = environ; *pair != nullptr; ++pair) {
      if (!is_among(*pair, environment)) environment_.push_back(*pair);
    }
    for (const std::string& pair : environment) {
      environment_.push_back(const_cast<char*>(pair.c_str()));
    }
    environment_.push_back(nullptr);
  }

  // Returns only on failure, with errno set. Like execvp, it lets the shell run a file in a format
  // that the kernel does not know, and fails with EACCES only if no other path can be executed.
  void run() const {
    int refused = 0;
    for (const std::string& path : paths_) {
      ::execve(path.c_str(), arguments_.data(), environment_.data());
      if (errno == ENOEXEC) {
        script_[1] = const_cast<char*>(path.c_str());
        ::execve("/bin/sh", script_.data(), environment_.data());
        return;
      }
      if (errno == EACCES) refused = EACCES;
      if (errno != ENOENT && errno != ENOTDIR && errno != EACCES) return;
    }
    errno = refused != 0 ? refused : ENOENT;
  }

 private:
  static std::vector<std::string> places_of(const std::string& name) {
    if (name.find('/') != std::string::npos || name.empty()) return {name};
    const char* path = std::getenv("PATH");
    std::string_view rest = path ? path : "/bin:/usr/bin";
    std::vector<std::string> places;
    for (;;) {
      const std::size_t end = rest.find(':');
      std::string place(rest.substr(0, end));
      if (!place.empty()) place += '/';
      places.push_back(std::move(place += name));
      if (end == std::string_view::npos) return places;
      rest.remove_prefix(end + 1);
    }
  }
  static bool is_among(const char* pair, const std::vector<std::string>& environment) {
    return std::ranges::any_of(environment, [&](const std::string& other) {
      return ::strncmp(pair, other.c_str(), other.find('=') + 1) == 0;
    });
  }

  const std::vector<std::string> paths_;
  std::vector<char*> arguments_, environment_;
  mutable std::vector<char*> script_;
};

// Runs in the child of a fork. Other threads may have held locks then, so it calls only
// async-signal-safe functions.
[[noreturn]] void become(const Executable& program, int go, int failed) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // until the parent calls go()
  char byte;
  if (::read(go, &byte, 1) != 1) ::_exit(127);
  ::prctl(PR_SET_PDEATHSIG, 0);
  restore_descriptor_limit();
  program.run();
  const int code = errno;
  static_cast<void>(!::write(failed, &code, sizeof code));
  ::_exit(127);
}

// Like sigabbrev_np, which glibc has since 2.32. Null for signals without a fixed meaning.
const char* signal_name(int signal) {
  struct Known {
    int number;
    const char* name;
  };
  static constexpr Known kKnown[] = {
      {SIGHUP, "HUP"},       {SIGINT, "INT"},   {SIGQUIT, "QUIT"}, {SIGILL, "ILL"},
      {SIGTRAP, "TRAP"},     {SIGABRT, "ABRT"}, {SIGBUS, "BUS"},   {SIGFPE, "FPE"},
      {SIGKILL, "KILL"},     {SIGUSR1, "USR1"}, {SIGSEGV, "SEGV"}, {SIGUSR2, "USR2"},
      {SIGPIPE, "PIPE"},     {SIGALRM, "ALRM"}, {SIGTERM, "TERM"}, {SIGSTKFLT, "STKFLT"},
      {SIGXCPU, "XCPU"},     {SIGXFSZ, "XFSZ"}, {SIGPROF, "PROF"}, {SIGSYS, "SYS"},
      {SIGVTALRM, "VTALRM"}, {SIGIO, "POLL"},   {SIGPWR, "PWR"},
  };
  for (const Known& known : kKnown) {
    if (known.number == signal) return known.name;
  }
  return nullptr;
}

}  // namespace

std::string Ending::words() const {
  if (signal == 0) return fmt::format("exit code {}", exit_code);
  const char* name = signal_name(signal);
  return name ? fmt::format("killed by signal {} (SIG{})", signal, name)
              : fmt::format("killed by signal {}", signal);
}

ChildCommand::ChildCommand(const std::vector<std::string>& words,
                           const std::vector<std::string>& environment)
    : name_(words.front()) {
  auto [go_read, go_write] = make_pipe();
  auto [failed_read, failed_write] = make_pipe();
  const Executable program(words, environment);
  pid_ = ::fork();
  if (pid_ < 0) throw Error::system("start", errno, name_);
  if (pid_ == 0) {
    ::close(go_write.get());  // so that the child sees the end of the pipe if we die
    become(program, go_read.get(), failed_write.get());
  }
  go_ = std::move(go_write);
  failed_ = std::move(failed_read);
}

ChildCommand::~ChildCommand() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void ChildCommand::go() {
  std::vector<int> all(kPassedOn.begin(), kPassedOn.end());
  all.push_back(SIGCHLD);
  // Done after the fork, so that the command starts with the original signal settings.
  std::signal(SIGCHLD, SIG_DFL);  // if ignored, the exit status would be lost
  signals_ = taken_in(set_of(all));
  static_cast<void>(!::write(go_.get(), "g", 1));
  int code = 0;
  ssize_t got;
  do {
    got = ::read(failed_.get(), &code, sizeof code);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof code) return;  // exec succeeded and closed the pipe
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
  const bool missing = code == ENOENT || (code == EACCES && !is_there(name_));
  throw CannotStart{missing ? 127 : 126, fmt::format("cannot run \"{}\": {}{}", visible(name_),
                                                     std::strerror(missing ? ENOENT : code),
                                                     missing ? hint(name_) : "")};
}

bool ChildCommand::reap(Ending& ending) {
  int status = 0;
  rusage usage{};
  if (::wait4(pid_, &status, WNOHANG, &usage) != pid_) return false;
  pid_ = -1;
  ending.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  ending.exit_code = ending.signal ? 128 + ending.signal : WEXITSTATUS(status);
  ending.peak_rss = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  return true;
}

void ChildCommand::take_signals() {
  signalfd_siginfo signal;
  while (::read(signals_.get(), &signal, sizeof signal) == sizeof signal) {
    const bool sent_to_us = signal.ssi_code <= 0;  // with kill(), not by the terminal
    if (signal.ssi_signo != SIGCHLD && sent_to_us) {
      ::kill(pid_, static_cast<int>(signal.ssi_signo));
    }
  }
}

bool ChildCommand::has_ended() const {
  siginfo_t state{};
  const int answer = ::waitid(P_PID, static_cast<id_t>(pid_), &state, WEXITED | WNOHANG | WNOWAIT);
  return answer == 0 && state.si_pid == pid_;
}

Ending ChildCommand::wait(std::chrono::nanoseconds interval,
                          const std::function<void(bool ended)>& tick) {
  Ending ending;
  bool ended = has_ended();
  for (auto next = steady_clock::now();;) {
    // A zombie still has its counters, so the last sample is taken before it is reaped.
    tick(ended);
    if (ended && reap(ending)) return ending;
    next = std::max(next + interval, steady_clock::now());
    // Without SIGCHLD the command has not ended, so most rounds only poll.
    while (!ended && poll_until(signals_.get(), next)) {
      take_signals();
      ended = has_ended();
    }
  }
}

SignalWatch::SignalWatch() {
  std::vector<int> wanted;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action;
    ::sigaction(signal, nullptr, &action);
    // Signals that were ignored before (nohup) stay ignored.
    if (action.sa_handler != SIG_IGN) wanted.push_back(signal);
  }
  signals_ = taken_in(set_of(wanted));
}

bool SignalWatch::came(std::chrono::nanoseconds wait) {
  poll_until(signals_.get(), steady_clock::now() + wait);
  signalfd_siginfo signal;
  return ::read(signals_.get(), &signal, sizeof signal) == sizeof signal;
}

}  // namespace evenkeel::cli
