#include "cli/memory_limit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;

Error refusal(const fs::path& path, int code) {
  return Error::system("limit memory by a cgroup", code)
      .in(path.string())
      .hint("creating a memory cgroup needs root and a writable /sys/fs/cgroup");
}

}  // namespace

MemoryLimit::MemoryLimit(std::uint64_t bytes) {
  const fs::path v1 = "/sys/fs/cgroup/memory", v2 = "/sys/fs/cgroup";
  const bool is_v1 = fs::exists(v1 / "memory.limit_in_bytes");
  folder_ = (is_v1 ? v1 : v2) / ("evenkeel-" + std::to_string(::getpid()));
  ::rmdir(folder_.c_str());  // left by a killed process with the same PID
  if (::mkdir(folder_.c_str(), 0755) != 0) throw refusal(folder_, errno);
  try {
    start_remover();
    put(is_v1 ? "memory.limit_in_bytes" : "memory.max", std::to_string(bytes));
  } catch (const Error&) {
    remove();
    throw;
  }
}

MemoryLimit::~MemoryLimit() { remove(); }

void MemoryLimit::remove() {
  ::rmdir(folder_.c_str());
  alive_ = Fd();
  if (remover_ > 0) ::waitpid(remover_, nullptr, 0);
}

// Starts a child that removes the cgroup when this process ends. A cgroup can be removed only after
// its processes have ended, and a worker ends shortly after its parent. Between fork and _exit, the
// child only makes system calls.
void MemoryLimit::start_remover() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  const std::string folder = folder_.string();
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, &before);  // Ctrl-C reaches the whole process group
  remover_ = ::fork();
  if (remover_ == 0) {
    ::close(ends[1]);
    char byte;
    while (::read(ends[0], &byte, 1) > 0) {
    }
    for (int tries = 0; tries < 3000 && ::rmdir(folder.c_str()) != 0 && errno == EBUSY; ++tries) {
      constexpr timespec kWait{0, 10'000'000};
      ::nanosleep(&kWait, nullptr);
    }
    ::_exit(0);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::close(ends[0]);
  alive_ = Fd(ends[1]);
}

void MemoryLimit::add(pid_t process) const { put("cgroup.procs", std::to_string(process)); }

void MemoryLimit::put(const char* file, const std::string& text) const {
  const fs::path path = folder_ / file;
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), text.data(), text.size()) < 0) throw refusal(path, errno);
}

}  // namespace evenkeel::cli
