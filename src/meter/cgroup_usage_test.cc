#include "meter/cgroup_usage.h"

#include <gtest/gtest.h>

#include "base/fake_tree.h"
#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

constexpr char kV2Mount[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
constexpr char kV1Mount[] = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
constexpr char kUnifiedMount[] = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

TEST(CgroupUsage, OfV2IsReadWithTheLeastLimitAround) {
  const FakeTree tree;
  tree.write("/proc/self/mountinfo", kV2Mount);
  tree.write("/proc/7/cgroup", "0::/team/job\n");
  tree.write("/sys/fs/cgroup/team/job/memory.current", "1000\n");
  tree.write("/sys/fs/cgroup/team/job/memory.max", std::to_string(1_GiB) + "\n");
  tree.write("/sys/fs/cgroup/team/job/memory.stat",
             "anon 100\nfile 800\nfile_mapped 9\ninactive_file 300\nactive_file 500\n");
  tree.write("/sys/fs/cgroup/team/memory.current", "5000\n");
  tree.write("/sys/fs/cgroup/team/memory.max", std::to_string(64_MiB) + "\n");
  const auto usage = cgroup_usage_below(tree.root(), 7);
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->version, 2);
  EXPECT_EQ(usage->path, "/team/job");
  EXPECT_EQ(usage->usage, 1000u);
  EXPECT_EQ(usage->anon, 100u);
  EXPECT_EQ(usage->file, 800u);
  EXPECT_EQ(usage->active_file, 500u);
  EXPECT_EQ(usage->inactive_file, 300u);
  EXPECT_EQ(usage->limit, 64_MiB);
}

TEST(CgroupUsage, OfV1CountsTheWholeSubtree) {
  const FakeTree tree;
  tree.write("/proc/self/mountinfo", std::string(kUnifiedMount) + kV1Mount);
  tree.write("/proc/self/cgroup", "4:memory:/job\n0::/\n");
  tree.write("/sys/fs/cgroup/unified/cgroup.procs", "");  // a v2 that has no memory
  tree.write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4000\n");
  tree.write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  tree.write("/sys/fs/cgroup/memory/job/memory.stat",
             "cache 1\nrss 2\nactive_file 3\ninactive_file 4\ntotal_cache 800\ntotal_rss 100\n"
             "total_rss_huge 7\ntotal_inactive_file 300\ntotal_active_file 500\n");
  const auto usage = cgroup_usage_below(tree.root(), 0);
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->version, 1);
  EXPECT_EQ(usage->path, "/job");
  EXPECT_EQ(usage->usage, 4000u);
  EXPECT_EQ(usage->anon, 100u);
  EXPECT_EQ(usage->file, 800u);
  EXPECT_EQ(usage->active_file, 500u);
  EXPECT_EQ(usage->inactive_file, 300u);
  EXPECT_FALSE(usage->limit);
}

// Usage of an ancestor is that of others as well.
TEST(CgroupUsage, OfAnAncestorIsNotTaken) {
  const FakeTree tree;
  tree.write("/proc/self/mountinfo", kV2Mount);
  tree.write("/proc/self/cgroup", "0::/team/job\n");
  tree.write("/sys/fs/cgroup/team/job/cgroup.procs", "");
  tree.write("/sys/fs/cgroup/team/memory.current", "5000\n");
  EXPECT_FALSE(cgroup_usage_below(tree.root(), 0));
}

TEST(CgroupUsage, WithoutCgroupsIsNone) {
  const FakeTree tree;
  EXPECT_FALSE(cgroup_usage_below(tree.root(), 0));
  EXPECT_FALSE(cgroup_usage(0x3ffffff0));
}

TEST(CgroupUsage, OfThisProcessIsPlausible) {
  const auto usage = cgroup_usage();
  if (!usage) GTEST_SKIP() << "no memory cgroup to be seen";
  EXPECT_FALSE(usage->path.empty());
  EXPECT_GT(usage->usage, 0u);
  EXPECT_LE(usage->active_file + usage->inactive_file, usage->file);
}

}  // namespace
}  // namespace evenkeel
