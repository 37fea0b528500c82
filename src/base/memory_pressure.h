// How short memory is for this process: on the machine, and in the cgroups around it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cgroup.h"
#include "base/fd.h"

namespace evenkeel {

struct MemoryState {
  std::uint64_t available = 0;   // MemAvailable, or what the tightest cgroup leaves if it is less
  std::uint64_t total = 0;       // MemTotal, or the limit of that cgroup
  std::uint64_t stalled_us = 0;  // how long tasks waited for memory (PSI), since the start
  // How often a limit was reached: memory.events (high, max) of v2, memory.failcnt of v1.
  std::uint64_t limit_hits = 0;
};

// Finds the cgroups of the process when it is made, and reads a few files of the kernel each time
// it is asked. What cannot be read counts as no pressure.
class MemoryPressure {
 public:
  // All files are looked up below `root`, so that tests can use a tree of their own.
  explicit MemoryPressure(std::string root = "");
  MemoryState read() const;

  // Descriptors that poll(2) reports with POLLPRI as soon as tasks wait for memory: PSI triggers of
  // the machine and of v2 cgroups. Empty where the kernel has none, or does not allow it.
  std::vector<Fd> open_triggers() const;

 private:
  const std::string root_;
  std::vector<CgroupFolder> folders_;
};

}  // namespace evenkeel
