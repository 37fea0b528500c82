// A memory cgroup like that of a cluster job.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/fd.h"

namespace evenkeel::cli {

// Uses version 1 or 2, whichever has the memory controller on this machine. The cgroup is removed
// when this object is destroyed, and by a small child process if this process is killed.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t bytes);  // needs root; throws Error (kSystem)
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  void add(pid_t process) const;  // throws Error (kSystem)

 private:
  void put(const char* file, const std::string& text) const;
  void start_remover();
  void remove();

  std::filesystem::path folder_;
  Fd alive_;  // pipe to the remover, which sees its end when this process has ended
  pid_t remover_ = -1;
};

}  // namespace evenkeel::cli
