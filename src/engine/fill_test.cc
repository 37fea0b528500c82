// labels: threads
// What reading with page_cache "fill" does to the page cache.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/sys.h"
#include "engine/engines.h"
#include "engine/test_feed.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kFillBytes = 24_MiB;

// Every `step` bytes, a piece of `length`.
std::vector<Extent> every(std::uint64_t step, std::uint64_t length, std::uint64_t size) {
  std::vector<Extent> extents;
  for (std::uint64_t offset = 0; offset + length <= size; offset += step) {
    extents.push_back(
        {.file = 0, .offset = offset, .length = length, .tag = extents.size(), .into = nullptr});
  }
  return extents;
}

class Fill : public testing::Test {
 protected:
  void SetUp() override {
    if (!disk_folder()) GTEST_SKIP() << "no folder on a disk that takes O_DIRECT";
    files_ = std::make_unique<TestFiles>(std::vector<std::size_t>{kFillBytes});
    fd_ = open_readable(files_->path(0), 0);
    sys::fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
    sys::CacheStat stat{};
    if (sys::cachestat(fd_.get(), 0, 0, &stat) != 0) GTEST_SKIP() << "the kernel has no cachestat";
  }
  std::uint64_t cached() const {
    sys::CacheStat stat{};
    sys::cachestat(fd_.get(), 0, 0, &stat);
    return stat.cached * sys::page_size();
  }
  std::string read(Engine& engine, const std::vector<Extent>& extents) const {
    TestFeed feed(*files_, extents);
    engine.run(feed.shuffle(1));
    return feed.account();
  }

  std::unique_ptr<TestFiles> files_;
  Fd fd_;
};

TEST_F(Fill, ReadsNothingThatNobodyAskedForWhereAccessIsSparse) {
  const auto engine = make_fill_engine(files_->layout, Budget(16_MiB));
  const auto extents = every(4_MiB, 600, kFillBytes);
  EXPECT_EQ(read(*engine, extents), "each once");
  EXPECT_LE(cached(), extents.size() * 2 * sys::page_size());  // readahead would read megabytes
}

TEST_F(Fill, KeepsWhatItReadInThePageCache) {
  const auto engine = make_fill_engine(files_->layout, Budget(16_MiB));
  EXPECT_EQ(run_all(*engine, *files_), "each once");
  EXPECT_GE(cached(), kFillBytes / 2);  // the kernel may have evicted some
}

TEST_F(Fill, ReadsAllOfARegionWhereMuchOfItIsAskedFor) {
  const auto engine = make_fill_engine(files_->layout, Budget(16_MiB));
  EXPECT_EQ(read(*engine, every(64_KiB, 600, kFillBytes)), "each once");
  EXPECT_GE(cached(), kFillBytes / 2);  // a sixteenth was asked for
}

TEST_F(Fill, ReadsNothingAheadWhereTheDataDoesNotFitFreeMemory) {
  const auto engine =
      make_fill_engine(files_->layout, Budget(16_MiB), [] { return std::uint64_t{kFillBytes}; });
  const auto extents = every(64_KiB, 600, kFillBytes);
  EXPECT_EQ(read(*engine, extents), "each once");
  EXPECT_LE(cached(), extents.size() * 2 * sys::page_size());
}

TEST_F(Fill, StopsReadingAheadWhenMemoryGetsShort) {
  int asked = 0;
  const auto engine = make_fill_engine(files_->layout, Budget(16_MiB), [&asked]() -> std::uint64_t {
    return asked++ == 0 ? 1_GiB : 1_MiB;  // at open, and later
  });
  const auto extents = every(64_KiB, 600, kFillBytes);
  EXPECT_EQ(read(*engine, extents), "each once");
  EXPECT_GE(asked, 2);
  EXPECT_LE(cached(), extents.size() * 2 * sys::page_size());
}

TEST_F(Fill, KeepsItsPageTablesWithinTheBudget) {
  const TestFiles large({80_MiB});
  const Budget budget(1_MiB);
  const auto engine = make_fill_engine(large.layout, budget);
  for (int round = 0; round < 3; ++round) {
    TestFeed feed(large, every(512_KiB, 600, 80_MiB));
    engine->run(feed.shuffle(2));
    EXPECT_EQ(feed.account(), "each once");
  }
  EXPECT_LE(budget.peak(), 1_MiB);
  // 40 pages of page tables would be needed; 16 are reserved. A mapping that is made anew has none.
  std::ifstream maps("/proc/self/smaps");
  std::uint64_t resident = UINT64_MAX;
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find(large.path(0)) != std::string::npos) found = true;
    if (found && line.starts_with("Rss:")) {
      resident = std::stoull(line.substr(4)) << 10;
      break;
    }
  }
  EXPECT_LT(resident, 60_MiB);
}

TEST_F(Fill, SeveralThreadsReadAtOnce) {
  const auto engine = make_fill_engine(files_->layout, Budget(16_MiB));
  std::vector<std::string> said(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < said.size(); ++i) {
    threads.emplace_back([&, i] { said[i] = read(*engine, every(16_KiB, 600, kFillBytes)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : said) EXPECT_EQ(one, "each once");
}

TEST_F(Fill, SaysThatTheBudgetDoesNotCoverThePageCache) {
  const auto engine = make_engine(engine_for(EngineKind::kAuto, PageCache::kFill), files_->layout,
                                  Budget(16_MiB), 0);
  EXPECT_EQ(engine->report().chosen, EngineKind::kFill);
  EXPECT_THAT(engine->report().why, HasSubstr("covers the library's own memory"));
}

TEST(PageCacheNames, AreThereAndBackAndUnknownOnesAreRefusedWithTheList) {
  for (const PageCache one : {PageCache::kSpare, PageCache::kFill}) {
    EXPECT_EQ(parse_page_cache(page_cache_name(one)), one);
  }
  try {
    parse_page_cache("all");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    EXPECT_THAT(error.what(), HasSubstr("\"spare\" (the default)"));
    EXPECT_THAT(error.what(), HasSubstr("\"fill\""));
  }
}

TEST(PageCacheNames, FillGoesWithNoOtherEngine) {
  EXPECT_EQ(engine_for(EngineKind::kDirect, PageCache::kSpare), EngineKind::kDirect);
  EXPECT_EQ(engine_for(EngineKind::kFill, PageCache::kFill), EngineKind::kFill);
  for (const EngineKind engine : {EngineKind::kDirect, EngineKind::kMap, EngineKind::kRead}) {
    EXPECT_THROW(engine_for(engine, PageCache::kFill), Error);
  }
}

}  // namespace
}  // namespace evenkeel
