// labels: reads
// What every engine must do.
#include "engine/engines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <ostream>
#include <thread>

#include "base/fd.h"
#include "base/memory.h"
#include "base/sys.h"
#include "engine/test_feed.h"
#include "evenkeel/error.h"
#include "tests/forked.h"
#include "tests/sanitizers.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

std::unique_ptr<Engine> make_direct(const Layout& layout, const Budget& budget,
                                    QueueChoice queue = QueueChoice::kBest) {
  std::string why_not;
  auto engine = make_direct_engine(layout, budget, why_not, queue);
  if (!engine) throw std::runtime_error(why_not);
  return engine;
}

struct Made {
  const char* name;
  std::unique_ptr<Engine> (*make)(const Layout&, const Budget&);
  friend std::ostream& operator<<(std::ostream& out, const Made& made) { return out << made.name; }
};

constexpr Made kEngines[] = {
    {"Map", [](const Layout& layout, const Budget&) { return make_map_engine(layout); }},
    {"Fill", [](const Layout& l, const Budget& b) { return make_fill_engine(l, b); }},
    {"Remap", make_remap_engine},
    {"Advise", make_advise_engine},
    {"Read", make_read_engine},
    {"Direct", [](const Layout& l, const Budget& b) { return make_direct(l, b); }},
    {"DirectByThreads",
     [](const Layout& l, const Budget& b) { return make_direct(l, b, QueueChoice::kThreads); }},
    {"CacheFirst",
     [](const Layout& l, const Budget& b) {
       return make_cache_first_engine(l, b, make_direct(l, b));
     }},
    {"CacheFirstRead",
     [](const Layout& l, const Budget& b) {
       return make_cache_first_engine(l, b, make_read_engine(l, b));
     }},
};

class EnginesTest : public testing::TestWithParam<Made> {
 protected:
  void SetUp() override {
    if (!disk_folder()) GTEST_SKIP() << "no folder on a disk that supports O_DIRECT";
  }
  static std::unique_ptr<Engine> make(const TestFiles& files, std::uint64_t budget = 16_MiB) {
    return GetParam().make(files.layout, Budget(budget));
  }
  static Error failure(Engine& engine, const TestFiles& files) {
    try {
      run_all(engine, files);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorKind::kClosed, "nothing", "the run succeeded");
  }
};

TEST_P(EnginesTest, BringsEveryExtentOnceWithItsBytes) {
  const TestFiles files({3'000'017});
  const auto engine = make(files);
  for (const std::uint64_t length : {512, 4096, 100'000, 1 << 20}) {
    EXPECT_EQ(run_all(*engine, files, length), "each once") << length;
  }
}

TEST_P(EnginesTest, ReadsFilesOfEverySizeAroundABlockToTheLastByte) {
  const TestFiles files({1, 511, 512, 513, 4095, 4096, 4097, 65'535, 65'536, 65'537, 1'048'577});
  const auto engine = make(files);
  EXPECT_EQ(run_all(*engine, files), "each once");
  EXPECT_EQ(run_all(*engine, files, 4096), "each once");
}

TEST_P(EnginesTest, ServesASmallBudget) {
  const TestFiles files({1'000'003, 77});
  const Budget budget(1_MiB);
  const auto engine = GetParam().make(files.layout, budget);
  EXPECT_EQ(run_all(*engine, files), "each once");
  EXPECT_LE(budget.peak(), 1_MiB);
}

TEST_P(EnginesTest, LimitsAreWhatTheHeaderSays) {
  const TestFiles files({100'000});
  for (const std::uint64_t budget : {1_MiB, 3_MiB, 64_MiB, 1_GiB}) {
    const EngineLimits limits = make(files, budget)->limits();
    EXPECT_EQ(limits.alignment & (limits.alignment - 1), 0u);
    EXPECT_GE(limits.max_request, limits.alignment);
    EXPECT_EQ(limits.max_request % limits.alignment, 0u);
  }
}

TEST_P(EnginesTest, GivesTheBudgetBackWhenItGoes) {
  const TestFiles files({100'000});
  const Budget budget(16_MiB);
  {
    const auto engine = GetParam().make(files.layout, budget);
    run_all(*engine, files);
  }
  EXPECT_EQ(budget.in_use(), 0u);
}

TEST_P(EnginesTest, ReadsInPlaceWhereItIsOfferedOrIgnoresTheOffer) {
  const TestFiles files({2'000'001});
  const auto engine = make(files);
  const auto extents = everything(files, engine->limits(), 128_KiB);
  const PageBuffer room(Budget(16_MiB), files.bytes[0].size() + 128_KiB, "room");
  TestFeed feed(files, extents);
  feed.in_place(room.data());
  engine->run(feed.shuffle(2));
  EXPECT_EQ(feed.account(), "each once");
}

TEST_P(EnginesTest, LaysBytesAtTheirTargetOrHandsThemOver) {
  const TestFiles files({2'000'001});
  const auto engine = make(files);
  auto extents = everything(files, engine->limits(), 8_KiB);
  extents.resize(extents.size() - 2);  // a target lies wholly inside its extent
  for (int round = 0; round < 3; ++round) {
    TestFeed feed(files, extents);
    engine->run(feed.with_targets(100, 1000).shuffle(3));
    EXPECT_EQ(feed.account(), "each once");
  }
}

TEST_P(EnginesTest, AFeedThatWantsNothingIsFine) {
  const TestFiles files({1000});
  TestFeed feed(files, {});
  make(files)->run(feed);
  EXPECT_EQ(feed.arrivals(), 0u);
}

TEST_P(EnginesTest, WhatArrivedThrowsComesOutAndTheEngineGoesOn) {
  const TestFiles files({4'000'000});
  const auto engine = make(files);
  for (const std::size_t number : {0, 1, 7, 40}) {
    TestFeed feed(files, everything(files, engine->limits(), 16_KiB));
    EXPECT_THROW(engine->run(feed.throw_in_arrived(number)), std::runtime_error);
    EXPECT_EQ(feed.arrivals(), number);  // the feed was not called afterwards
    EXPECT_EQ(run_all(*engine, files, 16_KiB), "each once");
  }
}

TEST_P(EnginesTest, WhatNextThrowsComesOutAndTheEngineGoesOn) {
  const TestFiles files({4'000'000});
  const auto engine = make(files);
  for (const std::size_t number : {0, 1, 7, 40}) {
    TestFeed feed(files, everything(files, engine->limits(), 16_KiB));
    EXPECT_THROW(engine->run(feed.throw_in_next(number)), std::runtime_error);
    EXPECT_EQ(run_all(*engine, files, 16_KiB), "each once");
  }
}

TEST_P(EnginesTest, NothingIsInFlightOnceItHasThrown) {
  const TestFiles files({4'000'000});
  const auto engine = make(files);
  const PageBuffer room(Budget(16_MiB), 5'000'000, "room");
  TestFeed feed(files, everything(files, engine->limits(), 64_KiB));
  EXPECT_THROW(engine->run(feed.in_place(room.data()).throw_in_arrived(2)), std::runtime_error);
  // A read that was still in flight would have finished by the end of another complete run.
  std::memset(room.data(), 0x5a, room.size());
  EXPECT_EQ(run_all(*engine, files), "each once");
  EXPECT_TRUE(std::all_of(room.data(), room.data() + room.size(),
                          [](std::byte b) { return b == std::byte{0x5a}; }));
}

TEST_P(EnginesTest, ATruncatedFileIsAnErrorThatNamesIt) {
  for (const std::uint64_t left : {0, 1000, 4096, 500'001}) {
    const TestFiles files({1'000'000});
    const auto engine = make(files);
    ASSERT_EQ(run_all(*engine, files), "each once");
    std::filesystem::resize_file(files.path(0), left);
    const Error error = failure(*engine, files);
    EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
    EXPECT_EQ(error.path(), files.path(0));
  }
}

TEST_P(EnginesTest, AFileTruncatedBeforeTheFirstReadIsAnErrorThatNamesIt) {
  const TestFiles files({1'000'000});
  const auto engine = make(files);
  std::filesystem::resize_file(files.path(0), 10'000);
  const Error error = failure(*engine, files);
  EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
  EXPECT_EQ(error.path(), files.path(0));
}

TEST_P(EnginesTest, AReplacedOrDeletedFileIsReadAsItWas) {
  for (const bool is_replaced : {true, false}) {
    const TestFiles files({100'000});
    const auto engine = make(files);
    std::filesystem::remove(files.path(0));
    if (is_replaced) files.folder.write("part0", std::string(100'000, 'x'));
    EXPECT_EQ(run_all(*engine, files), "each once");
    EXPECT_EQ(run_all(*make(files), files), "each once");
  }
}

TEST_P(EnginesTest, AReplacedFileFoundByNameIsAnErrorAndStaysOne) {
  TestFiles files({100'000});
  files.keep_no_descriptors();
  const auto engine = make(files);
  std::filesystem::rename(files.folder.write("new", files.bytes[0]), files.path(0));
  EXPECT_EQ(failure(*engine, files).kind(), ErrorKind::kFormat);
  EXPECT_EQ(failure(*engine, files).kind(), ErrorKind::kFormat);
}

TEST_P(EnginesTest, AMissingFileFoundByNameIsAnErrorThatNamesIt) {
  TestFiles files({100'000});
  files.keep_no_descriptors();
  const auto engine = make(files);
  std::filesystem::remove(files.path(0));
  const Error error = failure(*engine, files);
  EXPECT_EQ(error.code(), ENOENT);
  EXPECT_EQ(error.path(), files.path(0));
}

TEST_P(EnginesTest, OneSpoiltFileDoesNotSpoilTheOthers) {
  const TestFiles files({1'000'000, 300'000});
  const auto engine = make(files);
  ASSERT_EQ(run_all(*engine, files), "each once");
  std::filesystem::resize_file(files.path(0), 100'000);
  EXPECT_EQ(failure(*engine, files).path(), files.path(0));
  std::vector<Extent> sound;
  for (Extent extent : everything(files, engine->limits(), 64_KiB)) {
    if (extent.file == 1) {
      extent.tag = sound.size();
      sound.push_back(extent);
    }
  }
  TestFeed feed(files, sound);
  EXPECT_NO_THROW(engine->run(feed));
  EXPECT_EQ(feed.account(), "each once");
}

TEST_P(EnginesTest, ManyFilesNeedFewDescriptors) {
  const TestFiles files(std::vector<std::size_t>(200, 5000));
  const std::string said = in_child([&] {
    const rlimit low{40, 40};
    if (::setrlimit(RLIMIT_NOFILE, &low) != 0) return std::string("no limit");
    const auto engine = make(files);
    const std::string first = run_all(*engine, files);
    return first == "each once" ? run_all(*engine, files) : first;
  });
  EXPECT_EQ(said, "each once");
}

TEST_P(EnginesTest, ThreadsTakeTurns) {
  const TestFiles files({1'500'000});
  const auto engine = make(files);
  std::vector<std::string> said(3);
  std::vector<std::thread> threads;
  for (std::string& one : said) {
    threads.emplace_back([&] { one = run_all(*engine, files, 32_KiB); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(said, testing::Each("each once"));
}

TEST_P(EnginesTest, AChildReadsByItselfAndLeavesTheParentAlone) {
  if ((kUnderTsan || kUnderAsan) && std::string(GetParam().name) == "DirectByThreads") {
    GTEST_SKIP() << "sanitizers do not support fork with threads";
  }
  const TestFiles files({1'500'000});
  const auto engine = make(files);
  EXPECT_EQ(run_all(*engine, files, 32_KiB), "each once");
  EXPECT_EQ(in_child([&] { return run_all(*engine, files, 32_KiB); }), "each once");
  EXPECT_EQ(run_all(*engine, files, 32_KiB), "each once");
}

TEST_P(EnginesTest, SaysHowItWorks) {
  const TestFiles files({1000});
  const EngineReport report = make(files)->report();
  EXPECT_FALSE(report.how.empty());
  EXPECT_NE(report.chosen, EngineKind::kAuto);
}

TEST_P(EnginesTest, LeavesTheFileAsItWas) {
  const TestFiles files({1'000'003});
  const auto engine = make(files);
  run_all(*engine, files);
  EXPECT_EQ(read_layout({files.path(0)}, {.dtype = DType::of<std::uint8_t>()}).segments[0].identity,
            files.layout.segments[0].identity);
}

INSTANTIATE_TEST_SUITE_P(Each, EnginesTest, testing::ValuesIn(kEngines),
                         [](const auto& instance) { return instance.param.name; });

// Engines that keep to the budget leave nothing in the page cache.
class MemoryEngines : public EnginesTest {};

TEST_P(MemoryEngines, LeaveTheCacheAsTheyFoundIt) {
  const TestFiles files({12'000'123});
  const Fd fd = open_readable(files.path(0));
  ASSERT_EQ(sys::fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  sys::CacheStat before{}, after{};
  if (sys::cachestat(fd.get(), 0, 0, &before) != 0) GTEST_SKIP() << "the kernel has no cachestat";
  ASSERT_EQ(before.cached, 0u);
  const auto engine = make(files);
  for (const std::uint64_t length : {4_KiB, 1_MiB}) {
    EXPECT_EQ(run_all(*engine, files, length), "each once");
    ASSERT_EQ(sys::cachestat(fd.get(), 0, 0, &after), 0);
    EXPECT_EQ(after.cached, 0u) << length;
  }
}

// Checks the page cache for every page of an extent just before an engine gets it. The kernel may
// evict pages of any file at any time (DAMON does so with plenty of memory free), so an engine is
// only responsible for pages that were cached when it was asked to read them.
class CacheObserver final : public Feed {
 public:
  CacheObserver(Feed& inner, int fd, std::uint64_t pages)
      : inner_(inner), fd_(fd), cached_(pages) {}

  bool next(Extent& extent) override {
    if (!inner_.next(extent)) return false;
    const std::uint64_t page = sys::page_size();
    const std::uint64_t end = std::min((extent.offset + extent.length + page - 1) / page,
                                       static_cast<std::uint64_t>(cached_.size()));
    for (std::uint64_t i = extent.offset / page; i < end; ++i) cached_[i] = stat_of(i).cached != 0;
    return true;
  }
  void arrived(const Extent& extent, const std::byte* data) override {
    inner_.arrived(extent, data);
  }
  std::optional<Target> target(const Extent& extent) const override {
    return inner_.target(extent);
  }

  // Pages that were cached when requested and were dropped since. Eviction by the kernel leaves a
  // shadow entry, which cachestat counts as evicted; POSIX_FADV_DONTNEED leaves none.
  std::vector<std::uint64_t> dropped() const {
    std::vector<std::uint64_t> pages;
    for (std::uint64_t i = 0; i < cached_.size(); ++i) {
      const sys::CacheStat now = stat_of(i);
      if (cached_[i] && now.cached == 0 && now.evicted == 0) pages.push_back(i);
    }
    return pages;
  }
  // Pages that were not cached when requested, and are now.
  std::vector<std::uint64_t> added() const {
    std::vector<std::uint64_t> pages;
    for (std::uint64_t i = 0; i < cached_.size(); ++i) {
      if (!cached_[i] && stat_of(i).cached != 0) pages.push_back(i);
    }
    return pages;
  }

 private:
  sys::CacheStat stat_of(std::uint64_t index) const {
    sys::CacheStat stat{};
    if (sys::cachestat(fd_, index * sys::page_size(), sys::page_size(), &stat) != 0) {
      throw std::runtime_error("cachestat");
    }
    return stat;
  }

  Feed& inner_;
  const int fd_;
  std::vector<bool> cached_;
};

// Makes the kernel evict a page as reclaim does.
void evict_page(const Fd& fd, std::uint64_t index) {
  const std::uint64_t page = sys::page_size();
  void* at =
      ::mmap(nullptr, page, PROT_READ, MAP_SHARED, fd.get(), static_cast<off_t>(index * page));
  ASSERT_NE(at, MAP_FAILED);
  static_cast<void>(*static_cast<const volatile char*>(at));
  ::madvise(at, page, MADV_PAGEOUT);
  ::munmap(at, page);
}

// An engine that reads across a hole in the cache must drop the pages of the hole only: the pages
// around it were brought in by others.
TEST_P(MemoryEngines, KeepWhatOthersHaveCachedAroundAHole) {
  constexpr std::uint64_t kBytes = 12'000'123;
  const TestFiles files({kBytes});
  const Fd fd = open_readable(files.path(0));
  ASSERT_EQ(sys::fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM), 0);
  ASSERT_EQ(sys::fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED), 0);
  sys::CacheStat before{};
  if (sys::cachestat(fd.get(), 0, 0, &before) != 0) GTEST_SKIP() << "the kernel has no cachestat";
  const auto engine = make(files);
  for (const std::uint64_t length : {4_KiB, 1_MiB}) {
    std::vector<std::byte> step(64_KiB);
    for (std::uint64_t at = 0; at < kBytes; at += step.size()) {
      if (at % 3_MiB != 1_MiB) read_upto(fd.get(), at, step, files.path(0));
    }
    evict_page(fd, 1000);  // evicted by the kernel, so the engine may drop it after reading it
    TestFeed feed(files, everything(files, engine->limits(), length));
    CacheObserver observer(feed.shuffle(1), fd.get(), kBytes / sys::page_size() + 1);
    engine->run(observer);
    EXPECT_EQ(feed.account(), "each once") << length;
    EXPECT_THAT(observer.dropped(), testing::IsEmpty()) << length;
    EXPECT_THAT(observer.added(), testing::IsEmpty()) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Bounded, MemoryEngines,
                         testing::ValuesIn(kEngines + 2, std::end(kEngines)),  // not map and fill
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace evenkeel
