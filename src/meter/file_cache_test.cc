#include "meter/file_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "meter/temp_file.h"

namespace evenkeel {
namespace {

TEST(MemoryFileCache, DropEmptiesAndReadingFills) {
  constexpr std::uint64_t kBytes = 32_MiB;
  const TempFile file(kBytes);
  const auto left = drop_file_cache(file.path());
  if (!left) GTEST_SKIP() << "the kernel does not count cached pages";
  if (*left == kBytes) GTEST_SKIP() << "this file system keeps its pages (tmpfs)";
  EXPECT_EQ(*left, 0u);
  EXPECT_EQ(file_cache(file.path())->cached, 0u);
  file.read_through();
  const auto cache = file_cache(file.path());
  EXPECT_GE(cache->cached, kBytes);
  EXPECT_LE(cache->cached, kBytes + 1_MiB);
  EXPECT_EQ(cache->dirty, 0u);
}

TEST(MemoryFileCache, MincoreAgreesWithCachestat) {
  const TempFile file(5_MiB + 123);
  file.read_through();
  const Fd fd = open_readable(file.path());
  const auto now = file_cache_of(fd.get());
  const auto slow = file_cache_by_mincore(fd.get());
  ASSERT_TRUE(now);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->source, "mincore");
  EXPECT_EQ(slow->cached, now->cached);
  EXPECT_GE(slow->cached, 5_MiB + 123);
}

TEST(MemoryFileCache, EmptyFileHasNoPages) {
  const TempFile file(0);
  EXPECT_EQ(file_cache(file.path())->cached, 0u);
  EXPECT_EQ(file_cache_by_mincore(open_readable(file.path()).get())->cached, 0u);
  EXPECT_EQ(drop_file_cache(file.path()), 0u);
}

TEST(FileCache, MissingFileIsAnError) {
  EXPECT_THROW(file_cache("/nonexistent/evenkeel"), Error);
  EXPECT_THROW(drop_file_cache("/nonexistent/evenkeel"), Error);
  EXPECT_THROW(readahead_bytes("/nonexistent/evenkeel"), Error);
}

// For a user who neither owns the file nor may write to it, mincore returns wrong numbers.
TEST(FileCache, IsUnknownForFilesOfOtherUsers) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const TempFile file(1_MiB);
  const Fd fd = open_readable(file.path());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    ::_exit(file_cache_by_mincore(fd.get()) ? 1 : 0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace evenkeel
