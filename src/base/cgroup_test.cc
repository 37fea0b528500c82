#include "base/cgroup.h"

#include <gtest/gtest.h>

#include "base/fake_tree.h"
#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

constexpr char kV2Mount[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
constexpr char kV1Mount[] = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

void limit_v2(const FakeTree& tree, const std::string& cgroup, const std::string& max,
              std::uint64_t current, std::uint64_t inactive_file, const std::string& high = "max") {
  const std::string folder = "/sys/fs/cgroup" + cgroup;
  tree.write(folder + "/memory.max", max + "\n");
  tree.write(folder + "/memory.high", high + "\n");
  tree.write(folder + "/memory.current", std::to_string(current) + "\n");
  tree.write(folder + "/memory.stat", "anon 1\ninactive_file_x 7\ninactive_file " +
                                          std::to_string(inactive_file) + "\nfile 3\n");
}

void limit_v1(const FakeTree& tree, const std::string& cgroup, std::uint64_t limit,
              std::uint64_t usage, const std::string& stat = "") {
  const std::string folder = "/sys/fs/cgroup/memory" + cgroup;
  tree.write(folder + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
  tree.write(folder + "/memory.usage_in_bytes", std::to_string(usage) + "\n");
  tree.write(folder + "/memory.stat", stat);
}

constexpr std::uint64_t kUnlimitedV1 = 9223372036854771712u;

TEST(Cgroup, PathsComeFromTheRightLines) {
  const auto paths = parse_cgroup_paths(
      "9:name=systemd:/\n4:cpuset,memory:/jobs/a:b\n1:memory_x:/wrong\nbroken\n0::/user.slice\n");
  EXPECT_EQ(paths.v1, "/jobs/a:b");
  EXPECT_EQ(paths.v2, "/user.slice");
  EXPECT_EQ(parse_cgroup_paths("").v1, "");
}

TEST(Cgroup, MountsAreFoundAndUnescaped) {
  const auto mounts = parse_cgroup_mounts(
      "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
      "36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"
      "35 31 0:32 /docker/a\\040b /mnt/my\\134cg rw master:1 - cgroup cgroup rw,memory\n"
      "nonsense\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  ASSERT_EQ(mounts.size(), 2u);
  EXPECT_EQ(mounts[0].version, 1);
  EXPECT_EQ(mounts[0].root, "/docker/a b");
  EXPECT_EQ(mounts[0].point, "/mnt/my\\cg");
  EXPECT_EQ(mounts[1].version, 2);
}

TEST(Cgroup, V2AncestorWithLessHeadroomDecides) {
  const FakeTree tree;
  tree.write("/proc/self/cgroup", "0::/team/job\n");
  tree.write("/proc/self/mountinfo", kV2Mount);
  limit_v2(tree, "/team/job", std::to_string(1_GiB), 100_MiB, 20_MiB);
  limit_v2(tree, "/team", std::to_string(800_MiB), 700_MiB, 50_MiB);
  EXPECT_EQ(memory_cgroups(tree.root()).size(), 2u);
  const auto tightest = tightest_memory_cgroup(tree.root());
  ASSERT_TRUE(tightest);
  EXPECT_EQ(tightest->path, "/team");
  EXPECT_EQ(tightest->version, 2);
  EXPECT_EQ(tightest->headroom(), 150_MiB);
}

TEST(Cgroup, OtherProcessesHaveTheirOwn) {
  const FakeTree tree;
  tree.write("/proc/self/cgroup", "0::/\n");
  tree.write("/proc/7/cgroup", "0::/team/job\n");
  tree.write("/proc/self/mountinfo", kV2Mount);
  limit_v2(tree, "/team/job", "max", 100_MiB, 0);
  limit_v2(tree, "/team", std::to_string(800_MiB), 700_MiB, 0);
  EXPECT_TRUE(memory_cgroups(tree.root()).empty());
  ASSERT_EQ(memory_cgroups(tree.root(), 7).size(), 1u);
  EXPECT_EQ(memory_cgroups(tree.root(), 7)[0].path, "/team");
  const auto folders = memory_cgroup_folders(tree.root(), 7);
  ASSERT_EQ(folders.size(), 3u);
  EXPECT_EQ(folders[0].path, "/team/job");
  EXPECT_EQ(folders[0].directory, tree.root() + "/sys/fs/cgroup/team/job");
  EXPECT_EQ(folders[2].path, "/");
  EXPECT_TRUE(folders[2].top);
}

TEST(Cgroup, MemoryHighIsALimitToo) {
  const FakeTree tree;
  tree.write("/proc/self/cgroup", "0::/job\n");
  tree.write("/proc/self/mountinfo", kV2Mount);
  limit_v2(tree, "/job", "max", 10_MiB, 0, std::to_string(64_MiB));
  EXPECT_EQ(tightest_memory_cgroup(tree.root())->limit, 64_MiB);
}

TEST(Cgroup, NoLimitIsNoCgroup) {
  const FakeTree tree;
  EXPECT_FALSE(tightest_memory_cgroup(tree.root()));  // without even /proc
  tree.write("/proc/self/cgroup", "4:memory:/job\n0::/job\n");
  tree.write("/proc/self/mountinfo", std::string(kV1Mount) + kV2Mount);
  limit_v2(tree, "/job", "max", 10_MiB, 0);
  limit_v1(tree, "/job", kUnlimitedV1, 10_MiB);
  EXPECT_FALSE(tightest_memory_cgroup(tree.root()));
}

TEST(Cgroup, V1CountsInactiveFileOfTheWholeSubtree) {
  const FakeTree tree;
  tree.write("/proc/self/cgroup", "4:memory:/job\n0::/\n");
  tree.write("/proc/self/mountinfo", kV1Mount);
  limit_v1(tree, "/job", 400_MiB, 390_MiB,
           "inactive_file 1\ntotal_inactive_file " + std::to_string(300_MiB) + "\n");
  const auto tightest = tightest_memory_cgroup(tree.root());
  ASSERT_TRUE(tightest);
  EXPECT_EQ(tightest->version, 1);
  EXPECT_EQ(tightest->headroom(), 310_MiB);
}

TEST(Cgroup, ContainerSeesItsOwnCgroupAsTheMount) {
  const FakeTree tree;
  tree.write("/proc/self/cgroup", "4:memory:/docker/abc/sub\n");
  tree.write("/proc/self/mountinfo",
             "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  limit_v1(tree, "", 256_MiB, 56_MiB);
  limit_v1(tree, "/sub", kUnlimitedV1, 10_MiB);
  const auto tightest = tightest_memory_cgroup(tree.root());
  ASSERT_TRUE(tightest);
  EXPECT_EQ(tightest->path, "/docker/abc");
  EXPECT_EQ(tightest->headroom(), 200_MiB);
}

TEST(Cgroup, LimitAboveTheMountStillHolds) {
  const FakeTree tree;
  tree.write("/proc/self/cgroup", "4:memory:/somewhere/else\n");
  tree.write("/proc/self/mountinfo",
             "35 31 0:32 /pod/c1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  limit_v1(tree, "", kUnlimitedV1, 28_MiB,
           "hierarchical_memory_limit " + std::to_string(128_MiB) + "\n");
  EXPECT_EQ(tightest_memory_cgroup(tree.root())->headroom(), 100_MiB);
}

TEST(Cgroup, PathOutsideTheNamespaceFallsBackToTheMount) {
  const FakeTree tree;
  tree.write("/proc/self/cgroup", "0::/../other\n");
  tree.write("/proc/self/mountinfo", kV2Mount);
  limit_v2(tree, "", std::to_string(100_MiB), 40_MiB, 0);
  EXPECT_EQ(tightest_memory_cgroup(tree.root())->headroom(), 60_MiB);
}

TEST(Cgroup, HeadroomNeverWraps) {
  EXPECT_EQ((CgroupMemory{2, "/", 10, 20, 0}).headroom(), 0u);
  EXPECT_EQ((CgroupMemory{2, "/", 10, 5, 9}).headroom(), 10u);
}

}  // namespace
}  // namespace evenkeel
