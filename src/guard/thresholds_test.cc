#include "guard/thresholds.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace evenkeel {
namespace {

RC_GTEST_PROP(Pace, WakesBeforeMemoryIsPastTheLineAndItsSlack, ()) {
  const Thresholds lines(*rc::gen::inRange<std::uint64_t>(4_MiB, 64_GiB));
  const auto estimate = *rc::gen::inRange<std::uint64_t>(0, lines.trigger);
  const bool active = *rc::gen::arbitrary<bool>();
  const double slept = time_to_sleep(lines, estimate, active).count();
  RC_ASSERT(static_cast<double>(estimate) + 1e9 * slept <=
            static_cast<double>(lines.budget + lines.slack));
}

RC_GTEST_PROP(Pace, SleepsForATimeBetweenItsBounds, ()) {
  const Thresholds lines(*rc::gen::inRange<std::uint64_t>(4_MiB, 64_GiB));
  const auto estimate = *rc::gen::inRange<std::uint64_t>(0, 256_GiB);
  const double slept = time_to_sleep(lines, estimate, *rc::gen::arbitrary<bool>()).count();
  RC_ASSERT(slept >= 0.001);
  RC_ASSERT(slept <= 0.1);
}

TEST(Pace, ReleaseBeginsBelowTheLineAndGoesFurtherDown) {
  const Thresholds lines(100_MiB);
  EXPECT_EQ(lines.trigger, 90_MiB);
  EXPECT_EQ(lines.target, 70_MiB);
  EXPECT_EQ(lines.slack, 32_MiB);
  EXPECT_EQ(Thresholds(1000_MiB).slack, 100_MiB);
}

}  // namespace
}  // namespace evenkeel
