// Memory cgroups, v1 and v2: which limits stand around this process.
#pragma once

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

// The limited memory cgroups around this process, its own first, then its ancestors as far as they
// are mounted. All files are looked for below `root`, so that tests can bring a tree of their own.
std::vector<CgroupMemory> memory_cgroups(const std::string& root = "");

// The one with the least headroom; empty where nothing is limited.
std::optional<CgroupMemory> tightest_memory_cgroup(const std::string& root = "");

// Where this process is, from /proc/self/cgroup. Empty for a hierarchy that is not there.
struct CgroupPaths {
  std::string v1, v2;
};
CgroupPaths parse_cgroup_paths(std::string_view proc_self_cgroup);

// A mount that can show memory cgroups, from /proc/self/mountinfo: `point` shows the cgroup `root`.
struct CgroupMount {
  int version = 0;
  std::string root, point;
};
std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo);

}  // namespace evenkeel
