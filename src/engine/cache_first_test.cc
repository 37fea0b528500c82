// labels: threads reads
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "engine/engines.h"
#include "engine/test_feed.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

// Counts the extents that were not served from the cache, and reads them with the engine `read`.
class Rest final : public Engine {
 public:
  Rest(const Layout& layout, const Budget& budget, std::uint64_t& brought)
      : inner_(make_read_engine(layout, budget)), brought_(brought) {}
  void run(Feed& feed) override {
    Counting counting(feed, brought_);
    inner_->run(counting);
  }
  EngineLimits limits() const override { return inner_->limits(); }
  EngineReport report() const override { return inner_->report(); }

 private:
  struct Counting final : Feed {
    Counting(Feed& feed, std::uint64_t& count) : inner(feed), brought(count) {}
    bool next(Extent& extent) override { return inner.next(extent); }
    void arrived(const Extent& extent, const std::byte* data) override {
      ++brought;
      inner.arrived(extent, data);
    }
    std::optional<Target> target(const Extent& extent) const override {
      return inner.target(extent);
    }
    Feed& inner;
    std::uint64_t& brought;
  };
  const std::unique_ptr<Engine> inner_;
  std::uint64_t& brought_;
};

class MemoryCacheFirst : public testing::Test {
 protected:
  static constexpr std::size_t kBytes = 32 << 20;

  void SetUp() override {
    if (!disk_folder()) GTEST_SKIP() << "no folder on a disk that supports O_DIRECT";
    files_ = std::make_unique<TestFiles>(std::vector<std::size_t>{kBytes});
    fd_ = open_readable(files_->path(0));
    drop(0, 0);
    sys::CacheStat stat{};
    if (sys::cachestat(fd_.get(), 0, 0, &stat) != 0) GTEST_SKIP() << "the kernel has no cachestat";
    ASSERT_EQ(stat.cached, 0u);
  }

  void drop(std::uint64_t offset, std::uint64_t length) const {
    sys::fadvise(fd_.get(), offset, length, POSIX_FADV_DONTNEED);
  }
  std::uint64_t cached() const {
    sys::CacheStat stat{};
    sys::cachestat(fd_.get(), 0, 0, &stat);
    return stat.cached;
  }
  // Like np.memmap: faults also read the pages around them and leave readahead marks.
  void fault_in(const std::vector<std::uint64_t>& offsets) const {
    void* map = ::mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd_.get(), 0);
    ASSERT_NE(map, MAP_FAILED);
    for (const std::uint64_t offset : offsets) {
      static_cast<void>(*(static_cast<const volatile char*>(map) + offset));
    }
    ::munmap(map, kBytes);
  }
  // The kernel may evict a page at any time (DAMON does so with plenty of memory free), so this
  // touches all pages again until all are cached.
  void fault_in_all() const {
    std::vector<std::uint64_t> offsets;
    for (std::uint64_t at = 0; at < kBytes; at += sys::page_size()) offsets.push_back(at);
    for (int tries = 0; tries < 10 && cached() < offsets.size(); ++tries) fault_in(offsets);
  }
  std::unique_ptr<Engine> over_direct() const {
    std::string why_not;
    auto direct = make_direct_engine(files_->layout, Budget(16_MiB), why_not);
    return make_cache_first_engine(files_->layout, Budget(16_MiB), std::move(direct));
  }
  std::unique_ptr<Engine> over_counted() {
    const Budget budget(16_MiB);
    return make_cache_first_engine(files_->layout, budget,
                                   std::make_unique<Rest>(files_->layout, budget, brought_));
  }
  // Reads crops all over the file, first whole extents, then parts of them.
  void read_everywhere(Engine& engine) const {
    for (const std::uint64_t length : {4_KiB, 16_KiB, 128_KiB}) {
      auto extents = everything(*files_, engine.limits(), length);
      TestFeed whole(*files_, extents);
      engine.run(whole.shuffle(4));
      EXPECT_EQ(whole.account(), "each once");
      TestFeed part(*files_, extents);
      engine.run(part.with_targets(50, 3000).shuffle(5));
      EXPECT_EQ(part.account(), "each once");
    }
  }

  std::unique_ptr<TestFiles> files_;
  Fd fd_;
  std::uint64_t brought_ = 0;
};

TEST_F(MemoryCacheFirst, AddsNoPageToACacheWithHoles) {
  std::mt19937_64 random(9);
  std::vector<std::uint64_t> touched;
  for (int i = 0; i < 3; ++i) touched.push_back(random() % kBytes);
  fault_in(touched);
  for (std::uint64_t at = 0; at < kBytes; at += 3_MiB) drop(at, 256_KiB);
  const std::uint64_t before = cached();
  ASSERT_GT(before, 0u);
  ASSERT_LT(before, kBytes / sys::page_size());
  const auto engine = over_direct();
  read_everywhere(*engine);
  EXPECT_LE(cached(), before);
}

TEST_F(MemoryCacheFirst, AddsNoPageWhenOneSmallHoleIsAllThatIsMissing) {
  fault_in_all();
  drop(17_MiB, 2_MiB);
  const std::uint64_t before = cached();
  ASSERT_LT(before, kBytes / sys::page_size());
  const auto engine = over_direct();
  read_everywhere(*engine);
  EXPECT_LE(cached(), before);
}

TEST_F(MemoryCacheFirst, TakesWhatIsCachedFromTheCacheAlone) {
  // Again if the kernel has evicted a page meanwhile: that one comes from the other, rightly.
  std::uint64_t after = 0;
  for (int tries = 0; tries < 5 && after != kBytes / sys::page_size(); ++tries) {
    fault_in_all();
    brought_ = 0;
    const auto engine = over_counted();
    read_everywhere(*engine);
    after = cached();
  }
  EXPECT_EQ(brought_, 0u);
  EXPECT_EQ(after, kBytes / sys::page_size());  // and none was added or dropped
}

TEST_F(MemoryCacheFirst, LeavesWhatIsNotCachedToTheOther) {
  const auto engine = over_counted();
  const auto extents = everything(*files_, engine->limits(), 64_KiB);
  TestFeed feed(*files_, extents);
  engine->run(feed);
  EXPECT_EQ(feed.account(), "each once");
  EXPECT_EQ(brought_, extents.size());
  EXPECT_EQ(cached(), 0u);
}

TEST_F(MemoryCacheFirst, FindsOutAgainWhenTheCacheHasBeenFilledMeanwhile) {
  const auto engine = over_counted();
  ASSERT_EQ(run_all(*engine, *files_, 64_KiB), "each once");
  fault_in_all();
  ASSERT_EQ(run_all(*engine, *files_, 64_KiB), "each once");
  brought_ = 0;
  ASSERT_EQ(run_all(*engine, *files_, 64_KiB), "each once");
  EXPECT_EQ(brought_, 0u);
}

TEST_F(MemoryCacheFirst, IsNotFooledWhenTheCacheIsDroppedMeanwhile) {
  fault_in_all();
  const auto engine = over_direct();
  for (int round = 0; round < 2; ++round) ASSERT_EQ(run_all(*engine, *files_, 64_KiB), "each once");
  drop(0, 0);
  EXPECT_EQ(run_all(*engine, *files_, 64_KiB), "each once");
}

TEST_F(MemoryCacheFirst, ATruncatedCachedFileIsAnError) {
  fault_in_all();
  const auto engine = over_direct();
  ASSERT_EQ(run_all(*engine, *files_, 64_KiB), "each once");
  std::filesystem::resize_file(files_->path(0), 1_MiB);
  try {
    run_all(*engine, *files_, 64_KiB);
    ADD_FAILURE() << "the run succeeded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_EQ(error.path(), files_->path(0));
  }
}

TEST_F(MemoryCacheFirst, MergesLessOnceEverythingCameFromTheCache) {
  fault_in_all();
  const auto engine = over_direct();
  const std::uint64_t cold = engine->limits().merge_gap;
  run_all(*engine, *files_, 64_KiB);
  EXPECT_LT(engine->limits().merge_gap, cold);
  EXPECT_LE(engine->limits().merge_gap, 1024u);
}

// These tests do not measure memory, so they also run under sanitizers.
class CacheFirstThreads : public MemoryCacheFirst {};

TEST_F(CacheFirstThreads, TwoThreadsCopyFromTheCacheAtOnce) {
  fault_in_all();
  const auto engine = over_direct();
  EXPECT_EQ(engine->concurrency(), 1u);  // nothing is known yet
  ASSERT_EQ(run_all(*engine, *files_, 64_KiB), "each once");
  EXPECT_EQ(engine->concurrency(), 2u);
  EXPECT_EQ(run_all_twice_at_once(*engine, *files_, 64_KiB), "each once, each once");
}

TEST_F(CacheFirstThreads, CopyingThreadsHelpOneCallWhereTheBudgetHasRoom) {
  fault_in_all();
  const auto copying_threads = [&](std::uint64_t limit) {
    const Budget budget(limit);
    std::string why_not;
    auto direct = make_direct_engine(files_->layout, budget, why_not);
    const auto engine = make_cache_first_engine(files_->layout, budget, std::move(direct));
    for (int round = 0; round < 4; ++round) {  // nothing is known at first
      TestFeed feed(*files_, everything(*files_, engine->limits(), 4_KiB));
      engine->run(feed.with_targets(50, 3000).shuffle(static_cast<unsigned>(round)));
      EXPECT_EQ(feed.account(), "each once");
    }
    return std::ranges::count(budget.uses(), "copying threads", &BudgetUse::what);
  };
  EXPECT_EQ(copying_threads(64_MiB), std::thread::hardware_concurrency() > 1 ? 1 : 0);
  EXPECT_EQ(copying_threads(4_MiB), 0);
}

TEST_F(CacheFirstThreads, ThereIsOneWhereTheDataIsNotCached) {
  fault_in_all();
  const auto engine = over_direct();
  ASSERT_EQ(run_all(*engine, *files_, 64_KiB), "each once");
  drop(0, 0);
  ASSERT_EQ(run_all(*engine, *files_, 64_KiB), "each once");
  EXPECT_EQ(engine->concurrency(), 1u);
}

TEST_F(CacheFirstThreads, ThereIsOneWhereTheBudgetHasNoRoomForTwo) {
  fault_in_all();
  std::string why_not;
  const Budget budget(16_MiB);
  auto direct = make_direct_engine(files_->layout, budget, why_not);
  const std::uint64_t one = 2 * direct->limits().max_request + 2 * sys::page_size();
  const Reservation taken = budget.reserve(budget.left() - one, "something else");
  const auto engine = make_cache_first_engine(files_->layout, budget, std::move(direct));
  ASSERT_EQ(run_all(*engine, *files_, 64_KiB), "each once");
  EXPECT_EQ(engine->concurrency(), 1u);
}

TEST_F(MemoryCacheFirst, SaysWhoBringsTheRest) {
  EXPECT_THAT(over_direct()->report().how,
              HasSubstr("cached bytes from the page cache, the rest by O_DIRECT"));
}

}  // namespace
}  // namespace evenkeel
