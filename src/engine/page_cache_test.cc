#include "engine/page_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/fd.h"
#include "evenkeel/bytes.h"
#include "tests/fault_script.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

// A file of 16 MiB, parts of which are brought into the page cache and dropped.
class MemoryCache : public testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 16_MiB;
  static constexpr std::uint64_t kStep = 64_KiB;

  void SetUp() override {
    const auto place = disk_folder();
    if (!place) GTEST_SKIP() << "no folder on a disk that supports O_DIRECT";
    folder_ = std::make_unique<TempFolder>(*place);
    path_ = folder_->write_through("data", random_bytes(kBytes));
    fd_ = open_readable(path_);
    // Without readahead, only what is read is cached.
    ASSERT_EQ(sys::fadvise(fd_.get(), 0, 0, POSIX_FADV_RANDOM), 0);
    sys::CacheStat stat{};
    if (sys::cachestat(fd_.get(), 0, 0, &stat) != 0) GTEST_SKIP() << "the kernel has no cachestat";
    drop(0, kBytes);
    ASSERT_EQ(cached_pages(), 0u);
  }

  std::uint64_t cached_pages() const {
    sys::CacheStat stat{};
    sys::cachestat(fd_.get(), 0, 0, &stat);
    return stat.cached;
  }
  void drop(std::uint64_t offset, std::uint64_t length) const {
    ASSERT_EQ(sys::fadvise(fd_.get(), offset, length, POSIX_FADV_DONTNEED), 0);
  }
  // The kernel may evict a page at any time (DAMON does so with plenty of memory free), so this
  // reads again until all of it is cached.
  void bring(std::uint64_t offset, std::uint64_t length) const {
    const std::uint64_t page = sys::page_size();
    const std::uint64_t pages = (offset + length + page - 1) / page - offset / page;
    std::vector<std::byte> out(kStep);
    sys::CacheStat stat{};
    for (int tries = 0; tries < 10 && stat.cached < pages; ++tries) {
      for (std::uint64_t at = offset; at < offset + length; at += kStep) {
        read_upto(fd_.get(), at, {out.data(), std::min(kStep, offset + length - at)}, path_);
      }
      sys::cachestat(fd_.get(), offset, length, &stat);
    }
  }
  // Everything except 64 KiB at `offset`.
  void bring_all_but(std::uint64_t offset) const {
    bring(0, kBytes);
    drop(offset, kStep);
    ASSERT_FALSE(is_cached(fd_.get(), offset, kStep)) << "the hole was not made";
  }
  bool asked_twice(Residency& residency, std::uint64_t offset, std::uint64_t length) const {
    residency.surely_cached(fd_.get(), offset, length);
    return residency.surely_cached(fd_.get(), offset, length);
  }

  std::unique_ptr<TempFolder> folder_;
  std::string path_;
  Fd fd_;
};

TEST_F(MemoryCache, IsCachedFollowsReadingAndDropping) {
  EXPECT_FALSE(is_cached(fd_.get(), 0, kStep));
  bring(0, kStep);
  EXPECT_TRUE(is_cached(fd_.get(), 0, kStep));
  EXPECT_TRUE(is_cached(fd_.get(), 100, 50));
  EXPECT_FALSE(is_cached(fd_.get(), 0, kStep + 1));
  EXPECT_FALSE(is_cached(fd_.get(), 1_MiB, 1));
  drop(0, kStep);
  EXPECT_FALSE(is_cached(fd_.get(), 0, 1));
}

TEST_F(MemoryCache, IsCachedCountsEveryPageThatARangeTouches) {
  const std::uint64_t page = sys::page_size();
  bring(page, page);
  EXPECT_TRUE(is_cached(fd_.get(), page, page));
  EXPECT_TRUE(is_cached(fd_.get(), 2 * page - 1, 1));
  EXPECT_FALSE(is_cached(fd_.get(), 2 * page - 1, 2));
  EXPECT_FALSE(is_cached(fd_.get(), page - 1, 2));
}

TEST_F(MemoryCache, AskingBringsNothingIn) {
  Residency residency(kBytes, 1_MiB);
  EXPECT_FALSE(is_cached(fd_.get(), 0, kBytes));
  EXPECT_FALSE(asked_twice(residency, 5_MiB, 100));
  EXPECT_EQ(cached_pages(), 0u);
}

TEST_F(MemoryCache, IsCachedIsFalseWhereTheKernelWillNotSay) { EXPECT_FALSE(is_cached(-1, 0, 1)); }

TEST_F(MemoryCache, UncachedDropsWhatWasNotThereAndNothingElse) {
  const std::uint64_t page = sys::page_size();
  bring(3 * page, 2 * page);
  bring(1_MiB, kStep);
  const Uncached uncached(fd_.get(), page + 5, 2_MiB);
  EXPECT_FALSE(uncached.empty());
  bring(0, 4_MiB);
  uncached.drop(fd_.get());
  EXPECT_TRUE(is_cached(fd_.get(), 0, page));  // before the range
  EXPECT_FALSE(is_cached(fd_.get(), page, 1));
  EXPECT_FALSE(is_cached(fd_.get(), 2 * page, 1));
  EXPECT_TRUE(is_cached(fd_.get(), 3 * page, 2 * page));
  EXPECT_FALSE(is_cached(fd_.get(), 5 * page, 1));
  EXPECT_TRUE(is_cached(fd_.get(), 1_MiB, kStep));
  EXPECT_FALSE(is_cached(fd_.get(), 1_MiB + kStep, 1));
  EXPECT_TRUE(is_cached(fd_.get(), 2_MiB + kStep, 2_MiB - kStep));  // after it
}

TEST_F(MemoryCache, UncachedIsEmptyWhereAllIsCachedAndAllWhereNothingIs) {
  EXPECT_TRUE(Uncached(fd_.get(), 1_MiB, 0).empty());
  const Uncached all(fd_.get(), 0, kBytes);
  bring(0, kBytes);
  EXPECT_TRUE(Uncached(fd_.get(), 0, kBytes).empty());
  EXPECT_TRUE(Uncached(fd_.get(), 100, 1).empty());
  all.drop(fd_.get());
  EXPECT_EQ(cached_pages(), 0u);
}

TEST_F(MemoryCache, UncachedIsAllOfItWhereTheKernelWillNotSay) {
  EXPECT_FALSE(Uncached(-1, 0, 1).empty());
}

TEST_F(MemoryCache, ResidencyOfAWhollyCachedFileIsSureAtTheSecondAsking) {
  bring(0, kBytes);
  Residency residency(kBytes, 1_MiB);
  EXPECT_FALSE(residency.surely_cached(fd_.get(), 5_MiB, 100));
  EXPECT_TRUE(residency.surely_cached(fd_.get(), 5_MiB, 100));
  EXPECT_TRUE(residency.surely_cached(fd_.get(), 4_MiB + 7, 3_MiB));
  EXPECT_TRUE(asked_twice(residency, kBytes - 1, 1));
  EXPECT_TRUE(asked_twice(residency, 0, kBytes));
}

TEST_F(MemoryCache, ResidencyOfALargePartIsAskedForAtOnce) {
  bring_all_but(9_MiB);
  Residency residency(kBytes, 2_MiB);
  EXPECT_TRUE(residency.surely_cached(fd_.get(), 2_MiB, 1_MiB));
  EXPECT_FALSE(residency.surely_cached(fd_.get(), 6_MiB, 1_MiB));  // hole in the readahead window
  EXPECT_FALSE(residency.surely_cached(fd_.get(), 8_MiB, 1_MiB));
}

TEST_F(MemoryCache, ResidencyIsNotSureWhenAHoleLiesInTheReadaheadWindow) {
  bring_all_but(9_MiB);
  const std::uint64_t readahead = 4_MiB;
  for (const std::uint64_t begin : {9_MiB, 9_MiB - 100, 8_MiB, 7_MiB, 6_MiB, 5_MiB + 1}) {
    Residency residency(kBytes, readahead);
    EXPECT_FALSE(asked_twice(residency, begin, 200)) << begin;
    EXPECT_FALSE(residency.surely_cached(fd_.get(), begin, 200)) << begin;
  }
}

TEST_F(MemoryCache, ResidencyIsSureWhenTheHoleIsBehindOrFarAhead) {
  bring_all_but(9_MiB);
  Residency residency(kBytes, 2_MiB);
  EXPECT_TRUE(asked_twice(residency, 1_MiB, 200));
  EXPECT_TRUE(asked_twice(residency, 10_MiB, 200));  // its region begins after the hole
}

TEST_F(MemoryCache, ResidencySeesAHoleInTheLastPartialPage) {
  const std::string path = folder_->write_through("odd", random_bytes(2_MiB + 4096 + 5));
  const Fd odd = open_readable(path);
  sys::fadvise(odd.get(), 0, 0, POSIX_FADV_RANDOM);
  sys::fadvise(odd.get(), 0, 0, POSIX_FADV_DONTNEED);
  std::vector<std::byte> out(2_MiB + 4096);
  for (std::uint64_t at = 0; at < out.size(); at += 4096) {
    read_upto(odd.get(), at, {out.data(), 4096}, path);
  }
  Residency with_hole(2_MiB + 4096 + 5, 0);
  with_hole.surely_cached(odd.get(), 2_MiB, 5);
  EXPECT_FALSE(with_hole.surely_cached(odd.get(), 2_MiB, 5));
  read_upto(odd.get(), 2_MiB + 4096, {out.data(), 5}, path);
  Residency whole(2_MiB + 4096 + 5, 64_MiB);
  whole.surely_cached(odd.get(), 0, 5);
  EXPECT_TRUE(whole.surely_cached(odd.get(), 0, 5));
}

TEST_F(MemoryCache, ResidencyRemembersUntilItAges) {
  bring(0, kBytes);
  Residency residency(kBytes, 1_MiB);
  residency.age();
  ASSERT_TRUE(asked_twice(residency, 0, 100));
  drop(0, kBytes);
  EXPECT_TRUE(residency.surely_cached(fd_.get(), 0, 100));  // remembered for up to a second
  FaultScript later;
  later.spoil(sys::Call::kClock, 0, {.clock_jump_ns = 1'100'000'000}, true);
  residency.age();
  EXPECT_FALSE(asked_twice(residency, 0, 100));
}

TEST_F(MemoryCache, ResidencyOfAHugeFileIsSmall) {
  // For a file of 1 PiB, regions grow and their number stays bounded.
  Residency residency(std::uint64_t{1} << 50, 8_MiB);
  EXPECT_FALSE(asked_twice(residency, std::uint64_t{1} << 49, 100));
}

}  // namespace
}  // namespace evenkeel
