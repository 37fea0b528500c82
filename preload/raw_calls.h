// System calls that return what the kernel returns: a negative number is an errno. The program's
// errno does not change. None of them passes through a hook.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace evenkeel::preload {

class KeepErrno {
 public:
  KeepErrno() : before_(errno) {}
  ~KeepErrno() { errno = before_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  const int before_;
};

template <class... Arguments>
long raw(long number, Arguments... arguments) {
  const KeepErrno keep;
  const long result = ::syscall(number, arguments...);
  return result == -1 ? -errno : result;
}

inline long raw_open(const char* path, int flags) {
  return raw(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0);
}
inline void raw_close(long fd) { raw(SYS_close, fd); }
inline long raw_read(long fd, void* to, std::size_t bytes) { return raw(SYS_read, fd, to, bytes); }
// The result is not zero-terminated.
inline long raw_readlink(const char* path, char* to, std::size_t bytes) {
  return raw(SYS_readlinkat, AT_FDCWD, path, to, bytes);
}

// Whether a futex is used within one process, or between processes that share the memory.
enum class Among { kThreads, kProcesses };

// Returns false after the timeout.
inline bool futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Among among,
                       const timespec* timeout = nullptr) {
  const int op = FUTEX_WAIT | (among == Among::kThreads ? FUTEX_PRIVATE_FLAG : 0);
  return raw(SYS_futex, &word, op, seen, timeout, nullptr, 0) != -ETIMEDOUT;
}
inline void futex_wake(std::atomic<std::uint32_t>& word, int count, Among among) {
  const int op = FUTEX_WAKE | (among == Among::kThreads ? FUTEX_PRIVATE_FLAG : 0);
  raw(SYS_futex, &word, op, count, nullptr, nullptr, 0);
}

// A set of signals as in the kernel: signal 1 is bit 0.
using SignalBits = std::uint64_t;
inline constexpr SignalBits kAllSignals = ~SignalBits{0};
// The C library uses 32 to 34, for example in setuid(), to reach every thread. A thread that
// blocked them for good would hang the program.
inline constexpr SignalBits kProgramSignals = ~(SignalBits{7} << 31);

class BlockedSignals {
 public:
  explicit BlockedSignals(SignalBits which) {
    raw(SYS_rt_sigprocmask, SIG_BLOCK, &which, &before_, sizeof before_);
  }
  ~BlockedSignals() {
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &before_, static_cast<SignalBits*>(nullptr),
        sizeof before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  SignalBits before_ = 0;
};

}  // namespace evenkeel::preload
