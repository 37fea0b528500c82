// labels: threads
#include "base/automatic_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

#include "base/fake_tree.h"
#include "base/read_ahead_memory.h"
#include "base/reclaimable.h"
#include "evenkeel/error.h"
#include "tests/sanitizers.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;
using Use = BudgetPolicy::Use;

constexpr std::int64_t kSecondNs = 1'000'000'000;

// 16 GiB in all, of which 1 GiB is kept free.
MemoryState roomy(std::uint64_t available) { return {.available = available, .total = 16_GiB}; }

TEST(BudgetPolicy, GrowsStepByStepWhileMemoryIsFree) {
  BudgetPolicy policy;
  std::uint64_t limit = 64_MiB;
  std::vector<std::uint64_t> seen;
  for (int look = 0; look < 100; ++look) {
    limit = policy.limits(roomy(9_GiB), false, look * kSecondNs, {{limit, 0}})[0];
    seen.push_back(limit);
  }
  EXPECT_EQ(seen[0], 64_MiB + 16_MiB + 16_MiB);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(limit, 4_GiB);  // half of what is free beyond 1 GiB
}

TEST(BudgetPolicy, GivesBackWhatIsMissingWhenMemoryIsShort) {
  BudgetPolicy policy;
  EXPECT_EQ(policy.limits(roomy(800_MiB), false, 0, {{4_GiB, 3_GiB}})[0],
            3_GiB - (1_GiB - 800_MiB));
}

TEST(BudgetPolicy, SharesWhatIsMissingByUse) {
  BudgetPolicy policy;
  const auto limits = policy.limits(roomy(0), false, 0, {{4_GiB, 3_GiB}, {4_GiB, 1_GiB}});
  EXPECT_EQ(limits[0], 3_GiB - 768_MiB);
  EXPECT_EQ(limits[1], 1_GiB - 256_MiB);
}

TEST(BudgetPolicy, NeverGoesUnder16MiB) {
  BudgetPolicy policy;
  EXPECT_EQ(policy.limits(roomy(0), true, 0, {{64_MiB, 20_MiB}})[0], 16_MiB);
  EXPECT_EQ(policy.limits(roomy(0), true, 0, {{64_MiB, 0}})[0], 16_MiB);
}

TEST(BudgetPolicy, DoesNotPromiseWhatOthersHaveTaken) {
  BudgetPolicy policy;
  EXPECT_EQ(policy.limits(roomy(1_GiB + 512_MiB), false, 0, {{8_GiB, 100_MiB}})[0], 612_MiB);
}

TEST(BudgetPolicy, ShrinksWhenTasksWaitForMemoryAndGrowsAgainOnceItIsCalm) {
  BudgetPolicy policy;
  MemoryState state = roomy(9_GiB);
  policy.limits(state, false, 0, {{1_GiB, 800_MiB}});
  state.stalls_are_own = true;
  state.stalled_us += 200'000;
  EXPECT_EQ(policy.limits(state, false, kSecondNs, {{1_GiB, 800_MiB}})[0], 700_MiB);
  EXPECT_EQ(policy.limits(state, false, 2 * kSecondNs, {{700_MiB, 700_MiB}})[0], 700_MiB);
  EXPECT_GT(policy.limits(state, false, 4 * kSecondNs, {{700_MiB, 700_MiB}})[0], 700_MiB);
}

TEST(BudgetPolicy, StallsAddUpOverSeveralLooks) {
  constexpr std::int64_t kLookNs = 5'000'000;
  BudgetPolicy policy;
  MemoryState state = roomy(9_GiB);
  state.stalls_are_own = true;
  policy.limits(state, false, kSecondNs, {{1_GiB, 800_MiB}});
  std::vector<std::uint64_t> limits;
  for (int look = 1; look <= 4; ++look) {
    state.stalled_us += 1'000;
    limits.push_back(
        policy.limits(state, false, kSecondNs + look * kLookNs, {{1_GiB, 800_MiB}})[0]);
  }
  EXPECT_GE(limits[2], 1_GiB);
  EXPECT_EQ(limits[3], 700_MiB);  // 4 ms of the last 20 ms
  // The same waiting time, spread over a longer time, is no pressure.
  for (int look = 1; look <= 8; ++look) {
    state.stalled_us += 1'000;
    const std::int64_t now = (3 + look) * kSecondNs;
    EXPECT_GE(policy.limits(state, false, now, {{1_GiB, 800_MiB}})[0], 1_GiB);
  }
}

TEST(BudgetPolicy, LooksMoreOftenWhereMemoryMaySoonBeShort) {
  BudgetPolicy policy;
  policy.limits(roomy(9_GiB), false, 0, {{1_GiB, 800_MiB}});
  const int calm = policy.next_look_ms();
  policy.limits(roomy(3_GiB), false, kSecondNs, {{1_GiB, 800_MiB}});
  EXPECT_EQ(policy.next_look_ms(), calm);  // there is no cache that could be freed
  policy.limits(roomy(3_GiB), false, 2 * kSecondNs, {{1_GiB, 800_MiB}, {1_GiB, 800_MiB, 1_MiB}});
  EXPECT_LT(policy.next_look_ms(), calm);
  policy.limits(roomy(1_GiB + 512_MiB), false, 3 * kSecondNs, {{1_GiB, 800_MiB}});
  EXPECT_LT(policy.next_look_ms(), calm);
}

TEST(BudgetPolicy, ALookThatComesLateAllowsForMoreStalls) {
  BudgetPolicy policy;
  MemoryState state = roomy(9_GiB);
  state.stalls_are_own = true;
  policy.limits(state, false, kSecondNs, {{1_GiB, 800_MiB}});
  state.stalled_us += 50'000;  // of a second: a twentieth of the time
  EXPECT_GE(policy.limits(state, false, 2 * kSecondNs, {{1_GiB, 800_MiB}})[0], 1_GiB);
  state.stalled_us += 150'000;
  EXPECT_EQ(policy.limits(state, false, 3 * kSecondNs, {{1_GiB, 800_MiB}})[0], 700_MiB);
}

TEST(BudgetPolicy, StallsOfOthersCountOnlyWhereMemoryIsShort) {
  BudgetPolicy policy;
  MemoryState state = roomy(9_GiB);
  policy.limits(state, false, 0, {{1_GiB, 800_MiB}});
  state.stalled_us += 200'000;
  EXPECT_GE(policy.limits(state, true, kSecondNs, {{1_GiB, 800_MiB}})[0], 1_GiB);
  state.stalled_us += 200'000;
  state.available = 1_GiB + 100_MiB;
  EXPECT_EQ(policy.limits(state, false, kSecondNs, {{1_GiB, 800_MiB}})[0], 700_MiB);
}

TEST(BudgetPolicy, ACounterThatCouldNotBeReadOnceIsNoPressure) {
  BudgetPolicy policy;
  MemoryState state = roomy(9_GiB);
  state.stalls_are_own = true;
  state.stalled_us = 5'000'000;
  policy.limits(state, false, 0, {{1_GiB, 800_MiB}});
  state.stalled_us = 0;
  policy.limits(state, false, kSecondNs, {{1_GiB, 800_MiB}});
  state.stalled_us = 5'000'000;
  EXPECT_GE(policy.limits(state, false, 2 * kSecondNs, {{1_GiB, 800_MiB}})[0], 1_GiB);
}

TEST(BudgetPolicy, ALimitThatThePageCacheReachesIsNoPressure) {
  BudgetPolicy policy;
  MemoryState state = roomy(9_GiB);
  policy.limits(state, false, 0, {{1_GiB, 800_MiB}});
  state.limit_hits += 1000;
  EXPECT_GE(policy.limits(state, false, kSecondNs, {{1_GiB, 800_MiB}})[0], 1_GiB);
  state.available = 1_GiB + 100_MiB;
  state.limit_hits += 1;
  EXPECT_EQ(policy.limits(state, false, kSecondNs, {{1_GiB, 800_MiB}})[0], 700_MiB);
}

TEST(MemoryPressure, ReadsACgroupOfVersion2) {
  const FakeTree tree;
  tree.write("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  tree.write("/proc/pressure/memory",
             "some avg10=0.00 avg60=0.00 avg300=0.00 total=700\nfull avg10=0.00 total=9\n");
  tree.write("/proc/self/cgroup", "0::/job\n");
  tree.write("/proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  tree.write("/sys/fs/cgroup/job/memory.max", "2147483648\n");
  tree.write("/sys/fs/cgroup/job/memory.high", "1073741824\n");
  tree.write("/sys/fs/cgroup/job/memory.current", "671088640\n");
  tree.write("/sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 134217728\n");
  tree.write("/sys/fs/cgroup/job/memory.events", "low 0\nhigh 3\nmax 4\noom 0\n");
  tree.write("/sys/fs/cgroup/job/memory.pressure", "some avg10=0.00 avg60=0 avg300=0 total=50\n");
  const MemoryState state = MemoryPressure(tree.root()).read();
  EXPECT_EQ(state.available, 512_MiB);  // memory.high minus usage without inactive_file
  EXPECT_EQ(state.total, 1_GiB);
  EXPECT_EQ(state.stalled_us, 50u);  // of its own cgroup, not of the machine
  EXPECT_TRUE(state.stalls_are_own);
  EXPECT_EQ(state.limit_hits, 7u);
}

TEST(MemoryPressure, ReadsACgroupOfVersion1) {
  const FakeTree tree;
  tree.write("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  tree.write("/proc/self/cgroup", "4:memory:/job\n");
  tree.write("/proc/self/mountinfo",
             "30 20 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  tree.write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n");
  tree.write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1073741824\n");
  tree.write("/sys/fs/cgroup/memory/job/memory.failcnt", "12\n");
  const MemoryState state = MemoryPressure(tree.root()).read();
  EXPECT_EQ(state.available, 0u);
  EXPECT_EQ(state.total, 1_GiB);
  EXPECT_EQ(state.limit_hits, 12u);
}

TEST(MemoryPressure, WithoutAnyOfTheFilesThereIsNoPressure) {
  const FakeTree tree;
  const MemoryPressure pressure(tree.root());
  EXPECT_EQ(pressure.read().stalled_us, 0u);
  EXPECT_EQ(pressure.read().limit_hits, 0u);
  EXPECT_TRUE(pressure.open_triggers().empty());
}

// Counts what it holds, and frees what is requested.
class CountingCache : public Reclaimer, public std::enable_shared_from_this<CountingCache> {
 public:
  explicit CountingCache(const Budget& budget) : memory(budget, "cached blocks") {}
  void reclaim(std::uint64_t bytes) noexcept override {
    memory.shrink(std::min(bytes, memory.bytes()));
  }
  ReclaimableMemory memory;
};

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ResizedBudget, TakesFromCachesFirst) {
  const Budget budget(64_MiB);
  const auto cache = std::make_shared<CountingCache>(budget);
  cache->memory.serve(cache);
  const Reservation buffers = budget.reserve(10_MiB, "read buffers");
  ASSERT_TRUE(cache->memory.try_grow(40_MiB));
  budget.resize(30_MiB);
  EXPECT_EQ(budget.limit(), 30_MiB);
  EXPECT_EQ(budget.in_use(), 30_MiB);
  EXPECT_EQ(budget.cached(), 20_MiB);
  EXPECT_THAT(budget.describe(), HasSubstr("resized from 64 MiB"));
}

TEST(ResizedBudget, IsRefusedBelowWhatIsHeldWithTheArithmetic) {
  const Budget budget(64_MiB);
  const Reservation buffers = budget.reserve(10'000'000, "read buffers");
  const std::string said = message_of([&] { budget.resize(1_MiB); });
  EXPECT_THAT(said, HasSubstr("1,048,576 bytes are less than the 10,000,000 bytes in use (read "
                              "buffers 10,000,000); the budget stays at 67,108,864 bytes"));
  EXPECT_THAT(said, HasSubstr("at least 10 MiB"));
  EXPECT_EQ(budget.limit(), 64_MiB);
}

// Holds three buffers and can work with one.
class BuffersAhead : public ReadAheadMemory::Owner {
 public:
  explicit BuffersAhead(const Budget& budget) : memory_(budget, *this) {
    for (int i = 0; i < 3; ++i) shares_.push_back(budget.reserve(4_MiB, "batches"));
  }
  std::uint64_t spare_bytes() override { return (shares_.size() - 1) * 4_MiB; }
  void give_back(std::uint64_t bytes) override {
    for (std::uint64_t freed = 0; freed < bytes && shares_.size() > 1; freed += 4_MiB) {
      shares_.pop_back();
    }
  }

 private:
  std::vector<Reservation> shares_;
  ReadAheadMemory memory_;
};

TEST(ResizedBudget, TakesFromReadAheadWhatCachesDoNotHave) {
  const Budget budget(32_MiB);
  BuffersAhead first(budget);
  const Reservation other = budget.reserve(2_MiB, "results");
  budget.resize(14_MiB);
  EXPECT_EQ(budget.in_use(), 14_MiB);
  budget.resize(12_MiB);
  EXPECT_EQ(budget.in_use(), 10_MiB);
  const std::string said = message_of([&] { budget.resize(5_MiB); });
  EXPECT_THAT(said, HasSubstr("5,242,880 bytes are less than the 10,485,760 bytes in use "
                              "(batches 8,388,608 in 2, results 2,097,152), of which 4,194,304 for "
                              "reading ahead could be given back"));
  EXPECT_THAT(said, HasSubstr("set at least 6 MiB"));
  EXPECT_EQ(budget.in_use(), 10_MiB);  // a refused resize changes nothing
  budget.resize(6_MiB);
  EXPECT_EQ(budget.in_use(), 6_MiB);
}

TEST(ResizedBudget, LetsCachesAndReadsGrow) {
  const Budget budget(16_MiB);
  const Budget copy = budget;
  EXPECT_THROW(budget.reserve(20_MiB, "results"), Error);
  copy.resize(32_MiB);
  EXPECT_EQ(budget.reserve(20_MiB, "results").bytes(), 20_MiB);
}

TEST(ResizedBudget, ServesReadsThatWaitForMemory) {
  const Budget budget(16_MiB);
  const Reservation first = budget.reserve_for_read(12_MiB, "results");
  std::atomic<bool> waiting = false, served = false;
  std::thread waits([&] {
    // The waiting read calls this repeatedly.
    const Reservation second = budget.reserve_for_read(10_MiB, "results", [&] { waiting = true; });
    served = true;
  });
  while (!waiting) std::this_thread::yield();
  EXPECT_FALSE(served);
  budget.resize(32_MiB);
  waits.join();
  EXPECT_TRUE(served);
}

TEST(ResizedBudget, WaitsForReadsUnderWay) {
  const Budget budget(16_MiB);
  Reservation read = budget.reserve_for_read(12_MiB, "results");
  std::atomic<bool> resized = false;
  std::thread shrinks([&] {
    budget.resize(4_MiB);
    resized = true;
  });
  while (budget.limit() != 4_MiB) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time to return too early
  EXPECT_FALSE(resized);
  read.release();
  shrinks.join();
  EXPECT_EQ(budget.in_use(), 0u);
}

TEST(AutomaticBudget, SaysWhatItIsAndCannotBeResized) {
  const Budget budget = Budget::parse("auto");
  EXPECT_TRUE(budget.is_automatic());
  EXPECT_GE(budget.limit(), 16_MiB);
  EXPECT_THAT(budget.describe(), HasSubstr("follows memory pressure"));
  EXPECT_THAT(message_of([&] { budget.resize(1_GiB); }), HasSubstr("fixed size"));
  EXPECT_FALSE(Budget(1_GiB).is_automatic());
}

TEST(AutomaticBudget, TakesNoNumber) {
  for (const char* text : {"auto:2GiB", "auto 2GiB", "automatic"}) {
    EXPECT_THAT(message_of([&] { Budget::parse(text); }), HasSubstr("\"auto\" takes no number"));
  }
}

int threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

TEST(AutomaticBudget, AChildOfForkWatchesForItself) {
  if (kUnderTsan || kUnderAsan) GTEST_SKIP() << "the sanitizer does not support threads after fork";
  const Budget budget = Budget::automatic();
  const pid_t child = ::fork();
  if (child == 0) {
    const Reservation some = budget.reserve(1_MiB, "results");
    const bool right =
        budget.in_use() == 1_MiB && budget.limit() >= 16_MiB && threads_of_this_process() == 2;
    ::exit(right ? 0 : 1);  // ends the thread that was started here
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(AutomaticBudget, TheThreadEndsWithTheLastOneAndBeginsAgain) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto comes_to = [&](int threads) {
    while (threads_of_this_process() != threads) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  };
  constexpr int kWithoutBudgets = kUnderTsan ? 2 : 1;  // the sanitizer has its own thread
  ASSERT_TRUE(comes_to(kWithoutBudgets)) << "the thread of another test is still running";
  for (int round = 0; round < 3; ++round) {
    {
      const Budget first = Budget::automatic(), second = Budget::automatic();
      EXPECT_EQ(threads_of_this_process(), kWithoutBudgets + 1);
      EXPECT_EQ(first.reserve(1_MiB, "results").bytes(), 1_MiB);
    }
    EXPECT_TRUE(comes_to(kWithoutBudgets)) << threads_of_this_process();
  }
}

}  // namespace
}  // namespace evenkeel
