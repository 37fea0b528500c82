// For tests: runs a piece of work in a child of fork.
#pragma once

#include <fcntl.h>
#include <pwd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <stdexcept>
#include <string>

namespace evenkeel {

// What `work` returned; "threw: ..." after an exception, "died: ..." if the child was killed.
inline std::string in_child(const std::function<std::string()>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork");
  if (child == 0) {
    ::close(ends[0]);
    std::string said;
    try {
      said = work();
    } catch (const std::exception& error) {
      said = std::string("threw: ") + error.what();
    }
    std::size_t done = 0;
    while (done < said.size()) {
      const ssize_t put = ::write(ends[1], said.data() + done, said.size() - done);
      if (put <= 0) break;
      done += static_cast<std::size_t>(put);
    }
    ::_exit(0);  // without the destructors of the parent's objects
  }
  ::close(ends[1]);
  std::string said;
  char piece[4096];
  for (ssize_t got; (got = ::read(ends[0], piece, sizeof piece)) > 0;) {
    said.append(piece, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "died: signal " + std::to_string(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0) return "died: exit " + std::to_string(WEXITSTATUS(status));
  return said;
}

// Changes to a user without privileges, for the rest of the process. Only root can.
inline bool become_nobody() {
  const passwd* nobody = ::getpwnam("nobody");
  const uid_t user = nobody ? nobody->pw_uid : 65534;
  return ::setgid(user) == 0 && ::setuid(user) == 0;
}

}  // namespace evenkeel
