#include "profile/cost_limiter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace evenkeel {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Time = CostLimiter::Clock::time_point;
using Duration = CostLimiter::Clock::duration;

const Time kStart{seconds(1000)};

TEST(CostLimiter, GrantsTheFirstLookAtOnce) {
  CostLimiter limiter({.share = 0.001, .advance = milliseconds(1)}, kStart);
  EXPECT_TRUE(limiter.due(kStart));
}

TEST(CostLimiter, AfterACostlyLookTheNextIsDueWhenItsShareIsSaved) {
  CostLimiter limiter({.share = 0.01, .advance = milliseconds(5)}, kStart);
  limiter.took(kStart, milliseconds(20));  // 15 ms are owed and 20 ms must be saved: 3.5 s
  EXPECT_FALSE(limiter.due(kStart + milliseconds(3499)));
  EXPECT_TRUE(limiter.due(kStart + milliseconds(3501)));
}

TEST(CostLimiter, TheTimeWhenALookIsDueDoesNotDependOnTheNumberOfCalls) {
  CostLimiter limiter({.share = 0.01, .advance = milliseconds(5)}, kStart);
  limiter.took(kStart, milliseconds(20));
  Time now = kStart;
  while (!limiter.due(now)) now += milliseconds(1);
  EXPECT_NEAR(std::chrono::duration<double>(now - kStart).count(), 3.5, 0.002);
}

TEST(CostLimiter, CheapLooksKeepTheirDistance) {
  CostLimiter limiter({.share = 0.5, .advance = milliseconds(5), .least_between = milliseconds(50)},
                      kStart);
  EXPECT_TRUE(limiter.due(kStart));
  limiter.took(kStart, microseconds(1));
  EXPECT_FALSE(limiter.due(kStart + milliseconds(49)));
  EXPECT_TRUE(limiter.due(kStart + milliseconds(50)));
}

TEST(CostLimiter, ALongPauseSavesUpNoMoreThanTheAdvance) {
  CostLimiter limiter({.share = 0.01, .advance = milliseconds(5)}, kStart);
  Time now = kStart + seconds(3600);
  int granted = 0;
  for (; limiter.due(now); ++granted) limiter.took(now, milliseconds(1));
  EXPECT_EQ(granted, 5);
}

// due() is called at random times, for looks of random cost. The cost of the last is unexpected.
RC_GTEST_PROP(CostLimiter, NeverCostsMoreThanItsShareTheAdvanceAndTheLastLook, ()) {
  const double share = *rc::gen::inRange(1, 200) / 1000.0;
  const Duration advance = microseconds(*rc::gen::inRange(0, 10'000));
  const Duration between = microseconds(*rc::gen::inRange(0, 5'000));
  CostLimiter limiter({.share = share, .advance = advance, .least_between = between}, kStart);
  const auto steps = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(0, 50'000), rc::gen::inRange(0, 20'000)));
  Time now = kStart, last_look = kStart - seconds(1);
  Duration spent{}, last_cost{};
  for (const auto& [wait, cost] : steps) {
    now += microseconds(wait);
    if (!limiter.due(now)) continue;
    RC_ASSERT(now - last_look >= between);
    const double earned = std::chrono::duration<double>(now - kStart).count() * share;
    RC_ASSERT(std::chrono::duration<double>(spent - advance).count() <= earned + 1e-9);
    // It expects the cost of the last look, so another look of that cost fits as well.
    RC_ASSERT(std::chrono::duration<double>(spent + last_cost - advance).count() <= earned + 1e-9);
    last_look = now;
    last_cost = microseconds(cost);
    spent += last_cost;
    limiter.took(now, last_cost);
  }
}

RC_GTEST_PROP(CostLimiter, IsAlwaysDueAgainWhenTheShareHasPaid, ()) {
  const double share = *rc::gen::inRange(1, 200) / 1000.0;
  CostLimiter limiter({.share = share, .advance = milliseconds(2)}, kStart);
  Time now = kStart;
  for (const int cost : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 20'000))) {
    RC_ASSERT(limiter.due(now));
    limiter.took(now, microseconds(cost));
    const std::chrono::duration<double> twice(2e-6 * cost / share + 1e-6);  // owed, then saved up
    now += std::chrono::duration_cast<Duration>(twice);
  }
}

}  // namespace
}  // namespace evenkeel
