#include "cli/memory_limit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

namespace fs = std::filesystem;

Error refusal(const fs::path& path, int code) {
  return Error::system("limit memory by a cgroup", code)
      .in(path.string())
      .hint("memory cgroups are made by root, where /sys/fs/cgroup may be written to");
}

}  // namespace

MemoryLimit::MemoryLimit(std::uint64_t bytes) {
  const fs::path v1 = "/sys/fs/cgroup/memory", v2 = "/sys/fs/cgroup";
  const bool is_v1 = fs::exists(v1 / "memory.limit_in_bytes");
  folder_ = (is_v1 ? v1 : v2) / ("evenkeel-" + std::to_string(::getpid()));
  if (::mkdir(folder_.c_str(), 0755) != 0) throw refusal(folder_, errno);
  try {
    put(is_v1 ? "memory.limit_in_bytes" : "memory.max", std::to_string(bytes));
  } catch (const Error&) {
    ::rmdir(folder_.c_str());
    throw;
  }
}

MemoryLimit::~MemoryLimit() { ::rmdir(folder_.c_str()); }

void MemoryLimit::add(pid_t process) const { put("cgroup.procs", std::to_string(process)); }

void MemoryLimit::put(const char* file, const std::string& text) const {
  const fs::path path = folder_ / file;
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), text.data(), text.size()) < 0) throw refusal(path, errno);
}

}  // namespace evenkeel::cli
