#include "base/readahead.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <filesystem>

#include "base/fake_tree.h"
#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

TEST(Readahead, DiskHasAQueue) {
  const FakeTree tree;
  tree.write("/dev/block/8:0/queue/read_ahead_kb", "128\n");
  EXPECT_EQ(readahead_of_device(makedev(8, 0), tree.root()), 128_KiB);
}

TEST(Readahead, PartitionAsksItsDisk) {
  const FakeTree tree;
  tree.write("/devices/nvme0n1/queue/read_ahead_kb", "8192\n");
  tree.write("/devices/nvme0n1/nvme0n1p2/partition", "2\n");
  std::filesystem::create_directories(tree.root() + "/dev/block");
  std::filesystem::create_symlink("../../devices/nvme0n1/nvme0n1p2",
                                  tree.root() + "/dev/block/259:2");
  EXPECT_EQ(readahead_of_device(makedev(259, 2), tree.root()), 8192_KiB);
}

TEST(Readahead, NetworkFileSystemHasABackingDevice) {
  const FakeTree tree;
  tree.write("/class/bdi/0:52/read_ahead_kb", "15360\n");
  EXPECT_EQ(readahead_of_device(makedev(0, 52), tree.root()), 15360_KiB);
  EXPECT_FALSE(readahead_of_device(makedev(0, 53), tree.root()));
}

}  // namespace
}  // namespace evenkeel
