// A memory cgroup to work in, as a job on a cluster has one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/fd.h"

namespace evenkeel::cli {

// Version 1 or 2, whichever holds the memory controller here. It is removed when this object is
// destroyed, and when the process is killed: a small child waits for that.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t bytes);  // throws Error (kSystem): it takes root
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  void add(pid_t process) const;  // throws Error (kSystem)

 private:
  void put(const char* file, const std::string& text) const;
  void start_remover();
  void remove();

  std::filesystem::path folder_;
  Fd alive_;  // its other end is the remover's: it reads the end of file when we are gone
  pid_t remover_ = -1;
};

}  // namespace evenkeel::cli
