// How short memory is for this process: on the machine, and in the cgroups around it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/cgroup.h"
#include "base/fd.h"

namespace evenkeel {

struct MemoryState {
  std::uint64_t available = 0;   // MemAvailable, or what the tightest cgroup leaves if that is less
  std::uint64_t total = 0;       // MemTotal, or the limit of that cgroup
  std::uint64_t stalled_us = 0;  // how long tasks waited for memory (PSI), since the start
  bool stalls_are_own = false;   // tasks of this process's cgroup, not of the whole machine
  // How often a limit was reached: memory.events (high, max) of v2, memory.failcnt of v1.
  std::uint64_t limit_hits = 0;
};

// Finds the cgroups of the process in the constructor. Each read() reads a few files of the kernel.
// A file that cannot be read counts as no pressure.
class MemoryPressure {
 public:
  // All files are looked up below `root`, so that tests can use their own tree.
  explicit MemoryPressure(std::string root = "");
  MemoryPressure(const MemoryPressure&) = delete;
  MemoryPressure& operator=(const MemoryPressure&) = delete;
  MemoryState read() const;

  // Descriptors that poll(2) reports with POLLPRI as soon as tasks wait for memory: the PSI trigger
  // of the process's v2 cgroup, or else of the machine. Empty if the kernel has no triggers or does
  // not allow them.
  std::vector<Fd> open_triggers() const;

 private:
  std::string stall_file() const;

  const std::string root_;
  const std::vector<CgroupFolder> folders_;
  const CgroupFolder* own_cgroup_ = nullptr;  // the innermost of folders_ that counts stalls
};

}  // namespace evenkeel
