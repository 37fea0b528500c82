#include "guard/thresholds.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace evenkeel {
namespace {

RC_GTEST_PROP(Thresholds, TheEvictorWakesBeforeMemoryExceedsTheBudgetAndItsSlack, ()) {
  const Thresholds thresholds(*rc::gen::inRange<std::uint64_t>(4_MiB, 64_GiB));
  const auto estimate = *rc::gen::inRange<std::uint64_t>(0, thresholds.trigger);
  const bool active = *rc::gen::arbitrary<bool>();
  const double slept = time_to_sleep(thresholds, estimate, active).count();
  RC_ASSERT(static_cast<double>(estimate) + 1e9 * slept <=
            static_cast<double>(thresholds.budget + thresholds.slack));
}

RC_GTEST_PROP(Thresholds, TheTimeToSleepIsBetweenItsBounds, ()) {
  const Thresholds thresholds(*rc::gen::inRange<std::uint64_t>(4_MiB, 64_GiB));
  const auto estimate = *rc::gen::inRange<std::uint64_t>(0, 256_GiB);
  const double slept = time_to_sleep(thresholds, estimate, *rc::gen::arbitrary<bool>()).count();
  RC_ASSERT(slept >= 0.001);
  RC_ASSERT(slept <= 0.1);
}

TEST(Thresholds, ReleasingBeginsBelowTheBudgetAndGoesFurtherDown) {
  const Thresholds thresholds(100_MiB);
  EXPECT_EQ(thresholds.trigger, 90_MiB);
  EXPECT_EQ(thresholds.target, 70_MiB);
  EXPECT_EQ(thresholds.slack, 32_MiB);
  EXPECT_EQ(Thresholds(1000_MiB).slack, 100_MiB);
}

}  // namespace
}  // namespace evenkeel
