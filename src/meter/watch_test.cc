#include "meter/watch.h"

#include <gtest/gtest.h>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "evenkeel/meter.h"
#include "meter/temp_file.h"
#include "tests/forked.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kBytes = 8_MiB;

bool can_be_dropped(const TempFile& file) { return drop_file_cache(file.path()) == 0u; }

TEST(MemoryFileWatch, CountsPagesCachedAfterItBegan) {
  const TempFile cold(kBytes), warm(kBytes);
  if (!can_be_dropped(cold)) GTEST_SKIP() << "the cache of this file system cannot be dropped";
  warm.read_through();
  FileWatch watch;
  watch.add(cold.path());
  watch.add(warm.path());
  ASSERT_EQ(watch.files().size(), 2u);
  EXPECT_EQ(watch.files()[0].path, cold.path());
  EXPECT_EQ(watch.files()[0].size, kBytes);
  EXPECT_EQ(watch.files()[0].cached_before, 0u);
  EXPECT_EQ(watch.files()[1].cached_before, kBytes);
  EXPECT_EQ(watch.cached_above_before(), 0u);
  cold.read_through();
  EXPECT_EQ(watch.cached_above_before(), kBytes);
}

// Dropped pages of one file do not make up for new pages of another.
TEST(MemoryFileWatch, LossesAreNotSubtracted) {
  const TempFile cold(kBytes), warm(kBytes);
  if (!can_be_dropped(cold)) GTEST_SKIP() << "the cache of this file system cannot be dropped";
  FileWatch watch;
  watch.add(cold.path());
  watch.add(warm.path());
  cold.read_through();
  drop_file_cache(warm.path());
  EXPECT_EQ(watch.cached_above_before(), kBytes);
}

TEST(FileWatch, FileCountsOnceUnderAllItsNames) {
  const TempFile file(100);
  const std::string other = file.path() + "-link";
  ASSERT_EQ(::link(file.path().c_str(), other.c_str()), 0);
  FileWatch watch;
  watch.add(file.path());
  watch.add(file.path());
  watch.add(other);
  EXPECT_EQ(watch.files().size(), 1u);
  ::unlink(other.c_str());
}

TEST(FileWatch, NoFilesHaveNoCache) {
  FileWatch watch;
  EXPECT_EQ(watch.cached_above_before(), 0u);
  EXPECT_THROW(watch.add("/nonexistent/evenkeel"), Error);
  EXPECT_TRUE(watch.files().empty());
}

TEST(FileWatch, FilesOfOtherUsersAreUnknown) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const TempFile file(1_MiB);
  ASSERT_EQ(::chmod(file.path().c_str(), 0644), 0);
  const std::string said = in_child([&]() -> std::string {
    if (!become_nobody()) return "still root";
    FileWatch watch;
    watch.add(file.path());
    if (watch.files()[0].cached_before) return "known before";
    return watch.cached_above_before() ? "known" : "nothing";
  });
  EXPECT_EQ(said, "nothing");
}

TEST(FileWatch, BytesJustReadCountIfTheyAreCached) {
  const TempFile file(4_MiB);
  file.read_through();
  if (!file_cache(file.path())) GTEST_SKIP() << "the kernel does not count cached pages";
  FileWatch some, more;
  EXPECT_EQ(some.add(file.path(), 1_MiB), 1_MiB);
  EXPECT_EQ(some.cached_above_before(), 1_MiB);
  EXPECT_EQ(more.add(file.path(), 1_GiB), 4_MiB);
  EXPECT_EQ(more.files().front().cached_before, 0u);
}

}  // namespace
}  // namespace evenkeel
