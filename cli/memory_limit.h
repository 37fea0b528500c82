// A memory cgroup to work in, as a job on a cluster has one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace evenkeel::cli {

// Version 1 or 2, whichever holds the memory controller here. Gone when this goes.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::uint64_t bytes);  // throws Error (kSystem): it takes root
  ~MemoryLimit();
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

  void add(pid_t process) const;  // throws Error (kSystem)

 private:
  void put(const char* file, const std::string& text) const;

  std::filesystem::path folder_;
};

}  // namespace evenkeel::cli
