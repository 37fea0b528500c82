// labels: threads
// Tests what reading with page_cache "fill" does to the page cache.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/fault_hook.h"
#include "base/fd.h"
#include "base/sys.h"
#include "engine/engines.h"
#include "engine/test_feed.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kFillBytes = 24_MiB;

// Extents of `length` bytes, one every `step` bytes.
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
    if (!disk_folder()) GTEST_SKIP() << "no folder on a disk that supports O_DIRECT";
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
  EXPECT_GE(cached(), kFillBytes / 2);  // a sixteenth was requested
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
    return asked++ == 0 ? 1_GiB : 1_MiB;  // 1 GiB at open, 1 MiB later
  });
  const auto extents = every(64_KiB, 600, kFillBytes);
  EXPECT_EQ(read(*engine, extents), "each once");
  EXPECT_GE(asked, 2);
  EXPECT_LE(cached(), extents.size() * 2 * sys::page_size());
}

// The size of the page tables of this process in bytes.
std::uint64_t page_tables() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmPTE:")) return std::stoull(line.substr(6)) << 10;
  }
  return 0;
}

// Requests a few bytes in each 2 MiB of a file.
class OneInEachTable final : public Feed {
 public:
  explicit OneInEachTable(std::uint64_t bytes) : left_(bytes) {}
  bool next(Extent& extent) override {
    if (left_ == 0) return false;
    left_ -= 2_MiB;
    extent = {.file = 0, .offset = left_, .length = 64, .tag = 0, .into = nullptr};
    return true;
  }
  void arrived(const Extent&, const std::byte* data) override {
    sum += static_cast<unsigned>(*data);
    most_tables = std::max(most_tables, page_tables());
  }
  std::optional<Target> target(const Extent&) const override { return std::nullopt; }
  unsigned sum = 0;
  std::uint64_t most_tables = 0;

 private:
  std::uint64_t left_;
};

TEST_F(Fill, KeepsItsPageTablesWithinTheBudget) {
  constexpr std::uint64_t kSparse = 1_GiB;  // has 512 page tables, 2 MiB
  const TempFolder folder(*disk_folder());
  const std::string path = folder.write("sparse", "");
  std::filesystem::resize_file(path, kSparse);
  const Layout layout = read_layout({path}, {.dtype = DType::of<std::uint8_t>()});
  const auto grown = [&](std::uint64_t limit) {
    const Budget budget(limit);
    const auto engine = make_fill_engine(layout, budget);
    OneInEachTable feed(kSparse);
    const std::uint64_t before = page_tables();
    engine->run(feed);
    EXPECT_EQ(feed.sum, 0u);
    EXPECT_LE(budget.peak(), limit);
    return feed.most_tables - std::min(before, feed.most_tables);
  };
  // 64 KiB are reserved. The test allows more, because other threads allocate meanwhile and
  // sanitizers have their own page tables.
  EXPECT_LE(grown(1_MiB), 768_KiB);
  EXPECT_GE(grown(256_MiB), 1_MiB);  // otherwise the test measures nothing
}

// Acts like a kernel that unmaps a mapping and then fails to replace it.
class LosesMappings final : public sys::FaultHook {
 public:
  LosesMappings(std::string path, int times) : path_(std::move(path)), left_(times) {
    sys::fault_hook = this;
  }
  ~LosesMappings() { sys::fault_hook = nullptr; }
  LosesMappings(const LosesMappings&) = delete;
  LosesMappings& operator=(const LosesMappings&) = delete;
  sys::Fault on(sys::Call call) override {
    if (call != sys::Call::kMmap || left_ == 0) return {};
    --left_;
    unmap();
    return {.error = ENOMEM};
  }
  int left() const { return left_; }

 private:
  void unmap() const {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(path_) == std::string::npos) continue;
      const auto begin = std::stoull(line, nullptr, 16);
      const auto end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
      ::munmap(reinterpret_cast<void*>(begin), end - begin);
      return;
    }
  }
  const std::string path_;
  int left_;
};

TEST_F(Fill, AMappingThatIsLostIsMadeAgain) {
  const TestFiles large({80_MiB});
  const auto engine = make_fill_engine(large.layout, Budget(1_MiB));
  engine->mapped(0);
  const LosesMappings hook(large.path(0), 3);
  TestFeed feed(large, every(1_MiB, 600, 80_MiB));
  engine->run(feed.shuffle(2));
  EXPECT_EQ(feed.account(), "each once");
  EXPECT_EQ(hook.left(), 0);
}

TEST_F(Fill, AMappingThatStaysLostIsAnErrorAndTheNextReadMapsElsewhere) {
  const TestFiles large({80_MiB});
  const auto engine = make_fill_engine(large.layout, Budget(1_MiB));
  engine->mapped(0);
  TestFeed feed(large, every(1_MiB, 600, 80_MiB));
  {
    const LosesMappings hook(large.path(0), 1 << 20);
    try {
      engine->run(feed.shuffle(2));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("the mapping of the file was lost"));
      EXPECT_THAT(error.what(), HasSubstr(large.path(0)));
    }
  }
  TestFeed again(large, every(1_MiB, 600, 80_MiB));
  engine->run(again.shuffle(2));
  EXPECT_EQ(again.account(), "each once");
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
