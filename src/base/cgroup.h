// Memory cgroups, v1 and v2: which limits apply to a process.
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
  std::uint64_t usage = 0;          // including page cache
  std::uint64_t inactive_file = 0;  // the part of usage that the kernel reclaims first

  // How much more can be used before the limit is reached. inactive_file counts as free.
  std::uint64_t headroom() const;
  bool has_limit() const;
};

// A cgroup and the folder of its files.
struct CgroupFolder {
  int version = 0;
  std::string path;       // as the kernel names it
  std::string directory;  // where it is mounted
  bool top = false;       // its ancestors are not visible, although their limits still apply
};

// The cgroups of a process (0: this one) that may have a memory controller: for each version, its
// own cgroup first, then its ancestors as far as they are mounted. All files are looked up below
// `root`, so that tests can use their own tree.
std::vector<CgroupFolder> memory_cgroup_folders(const std::string& root = "", pid_t pid = 0);

// The current figures of one cgroup.
CgroupMemory memory_of(const CgroupFolder& folder);

// The cgroups of memory_cgroup_folders() that have a limit.
std::vector<CgroupMemory> memory_cgroups(const std::string& root = "", pid_t pid = 0);

// The cgroup of this process with the least headroom; empty if there is no limit.
std::optional<CgroupMemory> tightest_memory_cgroup(const std::string& root = "");

// The cgroup paths of a process, from /proc/PID/cgroup. Empty for a version that is not in use.
struct CgroupPaths {
  std::string v1, v2;
};
CgroupPaths parse_cgroup_paths(std::string_view proc_cgroup);

// A mount of a cgroup hierarchy, from /proc/self/mountinfo: the cgroup `root` is mounted at
// `point`.
struct CgroupMount {
  int version = 0;
  std::string root, point;
};
std::vector<CgroupMount> parse_cgroup_mounts(std::string_view mountinfo);

}  // namespace evenkeel
