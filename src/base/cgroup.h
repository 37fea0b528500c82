// Memory cgroups, v1 and v2: which limits stand around a process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

// One memory cgroup that has a limit. All in bytes.
struct CgroupMemory {
  int version = 0;                  // 1 or 2
  std::string path;                 // as the kernel names it: "/user.slice/app"
  std::uint64_t limit = 0;          // v2: the smaller of memory.max and memory.high
  std::uint64_t usage = 0;          // page cache included
  std::uint64_t inactive_file = 0;  // of the usage, what the kernel gives up first

  // What can still be taken before the limit bites.
  std::uint64_t headroom() const;
};

// A cgroup and where its files lie.
struct CgroupFolder {
  int version = 0;
  std::string path;       // as the kernel names it
  std::string directory;  // where it is mounted
  bool top = false;       // nothing above can be seen, though a limit there still holds
};

// The cgroups around a process (0: this one) that may have a memory controller: its own first, then
// its ancestors as far as they are mounted; one such row for each version. All files are looked for
// below `root`, so that tests can bring a tree of their own.
std::vector<CgroupFolder> memory_cgroup_folders(const std::string& root = "", pid_t pid = 0);

// Those of them that have a limit.
std::vector<CgroupMemory> memory_cgroups(const std::string& root = "", pid_t pid = 0);

// The one around this process with the least headroom; empty where nothing is limited.
std::optional<CgroupMemory> tightest_memory_cgroup(const std::string& root = "");

// Where a process is, from /proc/PID/cgroup. Empty for a hierarchy that is not there.
struct CgroupPaths {
  std::string v1, v2;
};
CgroupPaths parse_cgroup_paths(std::string_view proc_cgroup);

// A mount that can show memory cgroups, from /proc/self/mountinfo: `point` shows the cgroup `root`.
struct CgroupMount {
  int version = 0;
  std::string root, point;
};
std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo);

}  // namespace evenkeel
