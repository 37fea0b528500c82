#include "cli/worker_process.h"

#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "cli/interrupt.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {

WorkerProcess::WorkerProcess(const std::string& subcommand) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error::system("start a worker", errno);
  }
  socket_ = Fd(ends[0]);
  const Fd theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
  std::string name = "evenkeel", command = subcommand;
  char* arguments[] = {name.data(), command.data(), nullptr};
  const int error = ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, ::environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    throw Error::system("start a worker", error).in("/proc/self/exe");
  }
}

WorkerProcess::~WorkerProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void WorkerProcess::send(const std::string& line) {
  const std::string text = line + "\n";
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t count =
        ::send(socket_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) report_death();
    check_interrupt();
    if (count > 0) sent += static_cast<std::size_t>(count);
  }
}

std::optional<std::string> WorkerProcess::line(std::chrono::microseconds wait) {
  for (;;) {
    const std::size_t end = received_.find('\n', searched_);
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      searched_ = 0;
      return line;
    }
    searched_ = received_.size();
    pollfd poll = {socket_.get(), POLLIN, 0};
    const timespec timeout = {wait.count() / 1'000'000, wait.count() % 1'000'000 * 1000};
    const int ready = ::ppoll(&poll, 1, &timeout, nullptr);
    check_interrupt();
    if (ready <= 0) return std::nullopt;
    char piece[65536];
    const ssize_t got = ::recv(socket_.get(), piece, sizeof piece, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) report_death();
    received_.append(piece, static_cast<std::size_t>(got));
  }
}

std::string WorkerProcess::line() {
  for (;;) {
    if (auto next = line(std::chrono::seconds(1))) return *std::move(next);
  }
}

void WorkerProcess::report_death() {
  int status = 0;
  const pid_t pid = std::exchange(pid_, -1);
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  check_interrupt();  // Ctrl-C reaches the child too, and may reach it first
  if (!WIFSIGNALED(status)) {
    throw Error(ErrorKind::kSystem, "worker",
                fmt::format("ended early with exit code {}", WEXITSTATUS(status)));
  }
  const int signal = WTERMSIG(status);
  auto error = Error(ErrorKind::kSystem, "worker",
                     fmt::format("was ended by signal {} ({})", signal, ::strsignal(signal)));
  if (signal != SIGKILL) throw error;
  throw std::move(error).hint("the kernel does this when memory runs out; see `dmesg`");
}

void die_with_parent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // if the parent has died already, stdin has ended
}

}  // namespace evenkeel::cli
