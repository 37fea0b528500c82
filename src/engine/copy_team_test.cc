// labels: threads
#include "engine/copy_team.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "base/fault_hook.h"

namespace evenkeel {
namespace {

TEST(CopyTeam, DoesEachOnce) {
  CopyTeam team(3);
  for (const std::size_t count : {0, 1, 15, 16, 17, 1000}) {
    std::vector<std::atomic<int>> done(count);
    CopyTeam::Use(team).run(count, 3, [&](std::size_t i) { ++done[i]; });
    for (const auto& times : done) EXPECT_EQ(times, 1);
  }
}

TEST(CopyTeam, OthersTakePart) {
  CopyTeam team(1);
  std::atomic<int> arrived = 0;
  CopyTeam::Use(team).run(2, 1, [&](std::size_t) {  // two calls that wait for each other
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

// Lets the first thread start and throws bad_alloc for all others.
class OneThreadOnly final : public sys::FaultHook {
 public:
  OneThreadOnly() { sys::fault_hook = this; }
  ~OneThreadOnly() { sys::fault_hook = nullptr; }
  OneThreadOnly(const OneThreadOnly&) = delete;
  OneThreadOnly& operator=(const OneThreadOnly&) = delete;
  sys::Fault on(sys::Call call) override {
    if (call == sys::Call::kThreadStart && ++asked_ > 1) throw std::bad_alloc();
    return {};
  }

 private:
  int asked_ = 0;
};

TEST(CopyTeam, MakesDoWithTheThreadsThatThereIsMemoryFor) {
  const OneThreadOnly hook;
  CopyTeam team(3);
  std::vector<std::atomic<int>> done(1000);
  CopyTeam::Use(team).run(done.size(), 3, [&](std::size_t i) { ++done[i]; });
  for (const auto& times : done) EXPECT_EQ(times, 1);
}

TEST(CopyTeam, WithoutThreadsTheCallerDoesAll) {
  CopyTeam team(0);
  const std::thread::id here = std::this_thread::get_id();
  int done = 0;
  CopyTeam::Use(team).run(100, 4,
                          [&](std::size_t) { done += here == std::this_thread::get_id() ? 1 : 0; });
  EXPECT_EQ(done, 100);
}

TEST(CopyTeam, WorksForOneCallerAtATime) {
  CopyTeam team(2);
  {
    const CopyTeam::Use use(team);
    EXPECT_TRUE(use);
    EXPECT_FALSE(CopyTeam::Use(team));
  }
  EXPECT_TRUE(CopyTeam::Use(team));
}

TEST(HelpMeter, TakesTheCheaperWayAndTriesTheOtherNowAndThen) {
  HelpMeter meter;
  const auto helped = [&](std::int64_t with, std::int64_t without) {
    int times = 0;
    for (int i = 0; i < 320; ++i) {
      const bool help = meter.use_help();
      times += help ? 1 : 0;
      meter.note(help, help ? with : without, 100);
    }
    return times;
  };
  EXPECT_GE(helped(50, 100), 300);
  helped(500, 100);  // the processors have become busy, which takes some time to measure
  EXPECT_LE(helped(500, 100), 20);
  helped(50, 100);
  helped(50, 100);
  EXPECT_GE(helped(50, 100), 300);
}

TEST(CopyTeam, SeveralCallersGetTheirWorkDone) {
  CopyTeam team(2);
  std::atomic<long> sum = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int> numbers(100);
        const auto work = [&](std::size_t i) { numbers[i] = static_cast<int>(i); };
        for (bool done = false; !done;) {
          const CopyTeam::Use use(team);
          if (use) use.run(numbers.size(), 2, work);
          done = static_cast<bool>(use);
        }
        sum += std::accumulate(numbers.begin(), numbers.end(), 0);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * 4950);
}

}  // namespace
}  // namespace evenkeel
