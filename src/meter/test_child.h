// For tests: a child process that works step by step, controlled by the test.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>

namespace evenkeel {

// The child runs `work(steps)`. With `steps` it reports that a step is done, and waits until the
// test lets it go on. When the test is over, waiting processes end, including children of the
// child.
class TestChild {
 public:
  class Steps {
   public:
    Steps(int in, int out) : in_(in), out_(out) {}
    void done() const {  // reports a step and waits for the test
      tell();
      wait();
    }
    void tell() const {
      if (::write(out_, "x", 1) != 1) ::_exit(1);
    }
    void wait() const {
      char word;
      if (::read(in_, &word, 1) != 1) ::_exit(0);
    }
    [[noreturn]] void until_over() const {  // ignores go_on(), which is for other processes
      pollfd end{in_, 0, 0};
      while (::poll(&end, 1, -1) < 0 || (end.revents & POLLHUP) == 0) {
      }
      ::_exit(0);
    }

   private:
    int in_, out_;
  };

  explicit TestChild(const std::function<void(const Steps&)>& work) {
    int to_child[2], to_test[2];
    if (::pipe(to_child) != 0 || ::pipe(to_test) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      ::close(to_child[1]);
      ::close(to_test[0]);
      work(Steps(to_child[0], to_test[1]));
      ::_exit(0);
    }
    ::close(to_child[0]);
    ::close(to_test[1]);
    out_ = to_child[1];
    in_ = to_test[0];
  }
  TestChild(const TestChild&) = delete;
  TestChild& operator=(const TestChild&) = delete;
  ~TestChild() {
    ::close(out_);
    if (pid_ != 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    // The read returns 0 when the last descendant has ended.
    char word;
    while (::read(in_, &word, 1) > 0) {
    }
    ::close(in_);
  }

  pid_t pid() const { return pid_; }
  // Waits until the child is done with a step. Returns false if it has ended.
  bool wait() const {
    char word;
    return ::read(in_, &word, 1) == 1;
  }
  void go_on() const {
    if (::write(out_, "x", 1) != 1) throw std::runtime_error("the child has ended");
  }
  bool step() const {
    go_on();
    return wait();
  }
  void become_zombie() const {
    ::kill(pid_, SIGKILL);
    ::siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  void end() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int in_ = -1, out_ = -1;
};

// Allocates private memory and touches each 4 KiB, so that each is a fault.
inline void* touched_pages(std::size_t bytes) {
  void* map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) ::_exit(1);
  ::madvise(map, bytes, MADV_NOHUGEPAGE);
  for (std::size_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(map)[at] = 1;
  return map;
}

}  // namespace evenkeel
