#include "base/available_memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "base/cgroup.h"
#include "base/fake_tree.h"

namespace evenkeel {
namespace {

void machine(const FakeTree& tree, std::uint64_t available) {
  tree.write("/proc/meminfo", "MemTotal: 99999999 kB\nMemFree: 5 kB\nMemAvailable:   " +
                                  std::to_string(available / 1024) + " kB\nBuffers: 1 kB\n");
}

void cgroup_of(const FakeTree& tree, std::uint64_t limit) {
  tree.write("/proc/self/cgroup", "0::/job\n");
  tree.write("/proc/self/mountinfo",
             "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
  tree.write("/sys/fs/cgroup/job/memory.max", std::to_string(limit) + "\n");
  tree.write("/sys/fs/cgroup/job/memory.current", "0\n");
}

TEST(AvailableMemory, MachineDecidesWithoutCgroup) {
  const FakeTree tree;
  machine(tree, 8_GiB);
  const AvailableMemory memory = available_memory_below(tree.root());
  EXPECT_EQ(memory.bytes, 8_GiB);
  EXPECT_EQ(memory.source, "MemAvailable");
}

TEST(AvailableMemory, SmallerCgroupDecides) {
  const FakeTree tree;
  machine(tree, 8_GiB);
  cgroup_of(tree, 512_MiB);
  const AvailableMemory memory = available_memory_below(tree.root());
  EXPECT_EQ(memory.bytes, 512_MiB);
  EXPECT_EQ(memory.source, "memory cgroup v2 limit of /job");
}

TEST(AvailableMemory, LargerCgroupDoesNot) {
  const FakeTree tree;
  machine(tree, 256_MiB);
  cgroup_of(tree, 512_MiB);
  EXPECT_EQ(available_memory_below(tree.root()).source, "MemAvailable");
}

TEST(AvailableMemory, WithoutProcItStillAnswers) {
  const FakeTree tree;
  EXPECT_GT(available_memory_below(tree.root()).bytes, 0u);
}

TEST(AvailableMemory, OfThisMachineIsPlausible) {
  const AvailableMemory memory = available_memory();
  EXPECT_GT(memory.bytes, 1_MiB);
  EXPECT_FALSE(memory.source.empty());
}

// Makes a real cgroup (v1 or v2) with a limit, and a child that moves itself into it.
TEST(AvailableMemory, RealCgroupLimitIsSeen) {
  const std::string name = "/evenkeel-test-" + std::to_string(::getpid());
  std::string folder;
  for (const std::string& base :
       {std::string("/sys/fs/cgroup/memory"), std::string("/sys/fs/cgroup")}) {
    if (::mkdir((base + name).c_str(), 0755) == 0) {
      folder = base + name;
      break;
    }
  }
  if (folder.empty()) GTEST_SKIP() << "not permitted to make a memory cgroup here";
  bool limited = false;
  for (const char* file : {"/memory.limit_in_bytes", "/memory.max"}) {
    if (::access((folder + file).c_str(), W_OK) != 0) continue;
    limited = static_cast<bool>(std::ofstream(folder + file) << 300_MiB << std::flush);
  }
  int status = -1;
  if (limited) {
    const pid_t child = ::fork();
    if (child == 0) {
      std::ofstream(folder + "/cgroup.procs") << ::getpid() << std::flush;
      const AvailableMemory memory = available_memory();
      const bool right = memory.bytes <= 300_MiB && memory.bytes > 200_MiB &&
                         memory.source.find(name) != std::string::npos;
      ::_exit(right ? 0 : 1);
    }
    ::waitpid(child, &status, 0);
  }
  ::rmdir(folder.c_str());
  if (!limited) GTEST_SKIP() << "not permitted to limit a memory cgroup here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace evenkeel
