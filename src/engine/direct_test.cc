// labels: threads reads
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/fault_hook.h"
#include "engine/engines.h"
#include "engine/queue.h"
#include "engine/recorded_reads.h"
#include "engine/test_feed.h"
#include "tests/forked.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;
using testing::Not;

class DirectTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!disk_folder()) GTEST_SKIP() << "no folder on a disk that supports O_DIRECT";
  }
  static std::unique_ptr<Engine> make(const TestFiles& files,
                                      QueueChoice queue = QueueChoice::kBest) {
    std::string why_not;
    auto engine = make_direct_engine(files.layout, Budget(64_MiB), why_not, queue);
    EXPECT_TRUE(engine) << why_not;
    return engine;
  }
  static std::string why_no_uring() {
    std::string why_not;
    make_uring_queue(8, {}, 0, why_not);
    return why_not;
  }
};

TEST_F(DirectTest, UsesIoUringWithFilesAndBuffersRegistered) {
  if (const auto why = why_no_uring(); !why.empty()) GTEST_SKIP() << why;
  const TestFiles files({100'000});
  const EngineReport report = make(files)->report();
  EXPECT_EQ(report.chosen, EngineKind::kDirect);
  EXPECT_THAT(report.how, HasSubstr("O_DIRECT, io_uring, 128 in flight, registered files"));
}

TEST_F(DirectTest, SaysThatItUsesThreadsAndWhy) {
  const TestFiles files({100'000});
  const auto engine = make(files, QueueChoice::kThreads);
  EXPECT_EQ(engine->report().how, "O_DIRECT, 16 threads (io_uring was not asked for)");
  EXPECT_EQ(run_all(*engine, files), "each once");
}

TEST_F(DirectTest, ReadsBeginAtPagesUnlessTheBudgetIsSmall) {
  const TestFiles files({3'000'001});
  for (const std::uint64_t limit : {1_MiB, 20_MiB, 64_MiB}) {
    RecordedReads reads;
    std::string why_not;
    const auto engine = make_direct_engine(files.layout, Budget(limit), why_not);
    ASSERT_TRUE(engine) << why_not;
    for (const std::uint64_t length : {5_KiB / 2, 130_KiB / 2, 1_MiB}) {
      EXPECT_EQ(run_all(*engine, files, length), "each once");
      const std::vector<ReadOp> made = reads.take();
      EXPECT_GE(made.size(), 3u);
      if (limit == 1_MiB) continue;
      EXPECT_THAT(made, testing::Each(testing::Truly(begins_at_page)));
    }
  }
}

TEST_F(DirectTest, ManyFilesGoUnregistered) {
  const TestFiles files(std::vector<std::size_t>(150, 3000));
  const auto engine = make(files);
  EXPECT_THAT(engine->report().how, Not(HasSubstr("registered files")));
  EXPECT_EQ(run_all(*engine, files), "each once");
}

TEST_F(DirectTest, TwoThreadsReadAtOnceThroughTwoRings) {
  if (const auto why = why_no_uring(); !why.empty()) GTEST_SKIP() << why;
  const TestFiles files({3'000'001});
  const Budget budget(256_MiB);
  std::string why_not;
  const auto engine = make_direct_engine(files.layout, budget, why_not, QueueChoice::kBest);
  ASSERT_TRUE(engine) << why_not;
  const std::uint64_t one = budget.in_use();
  EXPECT_EQ(run_all(*engine, files), "each once");
  EXPECT_EQ(budget.in_use(), one);  // the second ring is created only when it is needed
  EXPECT_EQ(run_all_twice_at_once(*engine, files, 64_KiB), "each once, each once");
  EXPECT_GT(budget.in_use(), one);
  const EngineTotals totals = engine->totals();
  EXPECT_EQ(totals.in_flight, 0u);
  EXPECT_GE(totals.bytes_from_disk, 9'000'003u);
}

TEST_F(DirectTest, ThereIsOneRingWhereTheBudgetIsSmall) {
  const TestFiles files({300'001});
  const Budget budget(64_MiB);
  std::string why_not;
  const auto engine = make_direct_engine(files.layout, budget, why_not, QueueChoice::kBest);
  ASSERT_TRUE(engine) << why_not;
  const std::uint64_t one = budget.in_use();
  std::vector<std::string> accounts(4);
  std::vector<std::thread> threads;
  for (std::string& account : accounts) {
    threads.emplace_back([&] { account = run_all(*engine, files, 4_KiB); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(accounts, testing::Each("each once"));
  EXPECT_EQ(budget.in_use(), one);
}

// Keeps its ring until `let_go` is set, like a loader that lives as long as the program.
class EndlessFeed final : public Feed {
 public:
  bool next(Extent&) override {
    holds = true;
    while (!let_go) std::this_thread::yield();
    return false;
  }
  void arrived(const Extent&, const std::byte*) override {}
  std::optional<Target> target(const Extent&) const override { return std::nullopt; }
  std::atomic<bool> holds = false, let_go = false;
};

TEST_F(DirectTest, WhoWaitsForARingGetsTheOneThatIsFree) {
  if (const auto why = why_no_uring(); !why.empty()) GTEST_SKIP() << why;
  const TestFiles files({300'001});
  std::string why_not;
  const auto engine = make_direct_engine(files.layout, Budget(256_MiB), why_not);
  ASSERT_TRUE(engine) << why_not;
  for (const std::size_t kept : {0, 1}) {
    std::array<EndlessFeed, 2> holders;
    std::vector<std::thread> holding, waiting;
    for (EndlessFeed& feed : holders) {
      holding.emplace_back([&] { engine->run(feed); });
      while (!feed.holds) std::this_thread::yield();
    }
    std::vector<std::string> accounts(4);
    for (std::string& account : accounts) {
      waiting.emplace_back([&] { account = run_all(*engine, files, 64_KiB); });
    }
    holders[1 - kept].let_go = true;
    for (std::thread& thread : waiting) thread.join();  // the other ring is still in use
    EXPECT_THAT(accounts, testing::Each("each once"));
    holders[kept].let_go = true;
    for (std::thread& thread : holding) thread.join();
  }
}

// Lets the first io_uring be created and fails all others.
class OneRingOnly final : public sys::FaultHook {
 public:
  OneRingOnly() { sys::fault_hook = this; }
  ~OneRingOnly() { sys::fault_hook = nullptr; }
  OneRingOnly(const OneRingOnly&) = delete;
  OneRingOnly& operator=(const OneRingOnly&) = delete;
  sys::Fault on(sys::Call call) override {
    if (call != sys::Call::kRingSetup || rings++ == 0) return {};
    return {.error = ENOMEM};
  }
  std::atomic<int> rings = 0;
};

TEST_F(DirectTest, ASecondRingThatIsRefusedIsDoneWithout) {
  if (const auto why = why_no_uring(); !why.empty()) GTEST_SKIP() << why;
  const TestFiles files({300'001});
  const OneRingOnly hook;
  const Budget budget(256_MiB);
  std::string why_not;
  const auto engine = make_direct_engine(files.layout, budget, why_not);
  ASSERT_TRUE(engine) << why_not;
  const std::uint64_t one = budget.in_use();
  EndlessFeed holder;
  std::thread holding([&] { engine->run(holder); });
  while (!holder.holds) std::this_thread::yield();
  std::vector<std::string> accounts(2);
  std::vector<std::thread> waiting;
  for (std::string& account : accounts) {
    waiting.emplace_back([&] { account = run_all(*engine, files, 64_KiB); });
  }
  while (hook.rings < 2) std::this_thread::yield();
  holder.let_go = true;
  holding.join();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_THAT(accounts, testing::Each("each once"));
  EXPECT_EQ(hook.rings, 2);  // it was tried only once
  EXPECT_EQ(budget.in_use(), one);
}

// Has other work, and records how many reads had been started when it was first done.
class BusyFeed final : public Feed {
 public:
  BusyFeed(TestFeed& feed, const Engine& engine) : feed_(feed), engine_(engine) {}
  bool next(Extent& extent) override { return feed_.next(extent); }
  void arrived(const Extent& extent, const std::byte* data) override {
    feed_.arrived(extent, data);
  }
  std::optional<Target> target(const Extent& extent) const override { return feed_.target(extent); }
  bool has_other_work() const override { return parts_done < 5; }
  void do_other_work() override {
    if (++parts_done == 1) started = engine_.totals().requests;
  }
  int parts_done = 0;
  std::uint64_t started = 0;

 private:
  TestFeed& feed_;
  const Engine& engine_;
};

TEST_F(DirectTest, OtherWorkIsDoneOnceAllReadsAreStarted) {
  const TestFiles files({64_KiB});
  for (const QueueChoice queue : {QueueChoice::kBest, QueueChoice::kThreads}) {
    const auto engine = make(files, queue);
    TestFeed feed(files, everything(files, engine->limits(), 4_KiB));
    BusyFeed busy(feed, *engine);
    engine->run(busy);
    EXPECT_EQ(feed.account(), "each once");
    EXPECT_EQ(busy.started, 16u);
    EXPECT_GE(busy.parts_done, 1);
  }
}

// What an unprivileged process with a limit on locked memory reports after it has read everything.
class DirectMemlock : public DirectTest {
 protected:
  void SetUp() override {
    DirectTest::SetUp();
    if (::getuid() != 0) GTEST_SKIP() << "only root can become a user without privileges";
    if (const auto why = why_no_uring(); !why.empty()) GTEST_SKIP() << why;
  }
  static std::string report_under(rlim_t bytes) {
    const TestFiles files({3'000'001});
    return in_child([&] {
      const rlimit limit{bytes, bytes};
      if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || !become_nobody()) return std::string("root");
      const auto engine = make(files);
      return run_all(*engine, files) + "; " + engine->report().how;
    });
  }
};

TEST_F(DirectMemlock, TooSmallForTheBuffersLeavesThemUnregisteredAndSaysSo) {
  const std::string said = report_under(512_KiB);
  EXPECT_THAT(said, HasSubstr("each once; O_DIRECT, io_uring"));
  EXPECT_THAT(said, HasSubstr("registered files (buffers: memlock limit)"));
}

TEST_F(DirectMemlock, OfNothingIsServedAllTheSameAndSaysSo) {
  const std::string said = report_under(0);
  EXPECT_THAT(said, HasSubstr("each once; O_DIRECT, "));
  EXPECT_THAT(said, HasSubstr("memlock limit"));
}

TEST_F(DirectTest, AlignmentIsNoSmallerThanASector) {
  const TestFiles files({100'000});
  EXPECT_GE(make(files)->limits().alignment, 512u);
}

TEST_F(DirectTest, AFileThatIsGoneAtTheStartIsAnErrorNotAFallback) {
  TestFiles files({1000});
  files.keep_no_descriptors();
  std::filesystem::remove(files.path(0));
  std::string why_not;
  EXPECT_THROW(make_direct_engine(files.layout, Budget(16_MiB), why_not), Error);
}

TEST(DirectOnTmpfs, SaysWhyNotOrWorks) {
  if (!std::filesystem::exists("/dev/shm") || !is_in_memory_filesystem("/dev/shm")) {
    GTEST_SKIP() << "/dev/shm is not a tmpfs here";
  }
  const TestFiles files({1'000'003}, "/dev/shm");
  std::string why_not;
  const auto engine = make_direct_engine(files.layout, Budget(16_MiB), why_not);
  if (!engine) {
    EXPECT_THAT(why_not, HasSubstr(files.path(0)));
    EXPECT_THAT(why_not, HasSubstr("does not take O_DIRECT"));
    return;
  }
  EXPECT_EQ(why_not, "");
  EXPECT_EQ(run_all(*engine, files), "each once");
}

}  // namespace
}  // namespace evenkeel
