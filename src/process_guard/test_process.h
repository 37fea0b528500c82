// For tests: another process that maps a file of numbers and executes commands.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <stdexcept>
#include <string>

#include "guard/test_mapping.h"
#include "meter/proc_maps.h"
#include "tests/forked.h"

namespace evenkeel {

class TestProcess {
 public:
  struct Options {
    int protection = PROT_READ;
    int flags = MAP_SHARED;
    bool as_nobody = false;
  };
  explicit TestProcess(const NumberFile& file) : TestProcess(file, Options()) {}
  TestProcess(const NumberFile& file, const Options& options) {
    int to[2], from[2];
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) {
      throw std::runtime_error("pipe");
    }
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ == 0) {
      ::close(to[1]);  // otherwise it would not notice the end of its parent
      serve(file, options, to[0], from[1]);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = Fd(to[1]);
    from_ = Fd(from[0]);
    answer();
  }
  TestProcess(const TestProcess&) = delete;
  ~TestProcess() { end(); }

  pid_t pid() const { return pid_; }
  std::uint64_t address() const { return address_; }
  AddressRange range(const NumberFile& file) const { return {address_, address_ + file.bytes()}; }
  // Reads the whole file. Returns the number of wrong words.
  std::uint64_t touch() { return ask('t'); }
  static constexpr std::uint64_t kEndBytes = 16 << 20;
  void touch_end() { ask('e'); }  // each page of the last kEndBytes
  void unmap() { ask('u'); }
  void map_again() { ask('m'); }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  // Must not allocate memory: the parent may have had threads.
  [[noreturn]] static void serve(const NumberFile& file, const Options& options, int in, int out) {
    if (options.as_nobody && !become_nobody()) ::_exit(1);
    const auto map = [&] {
      void* at = ::mmap(nullptr, file.bytes(), options.protection, options.flags, file.fd(), 0);
      if (at == MAP_FAILED) ::_exit(1);
      return static_cast<volatile std::uint64_t*>(at);
    };
    volatile std::uint64_t* words = map();
    std::uint64_t answer[2] = {reinterpret_cast<std::uint64_t>(words), 0};
    for (char command;;) {
      if (::write(out, answer, sizeof answer) != sizeof answer || ::read(in, &command, 1) != 1) {
        break;
      }
      answer[1] = 0;
      if (command == 'm') words = map();
      if (command == 'u') ::munmap(const_cast<std::uint64_t*>(words), file.bytes());
      if (command == 't') {
        for (std::uint64_t i = 0; i < file.words(); ++i) answer[1] += words[i] != i;
      }
      if (command == 'e') {
        constexpr std::uint64_t kPage = 4096 / 8, kEnd = kEndBytes / 8;
        for (std::uint64_t i = file.words() - kEnd; i < file.words(); i += kPage) {
          static_cast<void>(words[i]);
        }
      }
      answer[0] = reinterpret_cast<std::uint64_t>(words);
    }
    ::_exit(0);
  }
  std::uint64_t answer() {
    std::uint64_t said[2];
    if (::read(from_.get(), said, sizeof said) != sizeof said) {
      throw std::runtime_error("the process has ended");
    }
    address_ = said[0];
    return said[1];
  }
  std::uint64_t ask(char command) {
    if (::write(to_.get(), &command, 1) != 1) throw std::runtime_error("cannot send a command");
    return answer();
  }

  pid_t pid_ = -1;
  std::uint64_t address_ = 0;
  Fd to_, from_;
};

}  // namespace evenkeel
