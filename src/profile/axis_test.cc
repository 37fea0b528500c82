#include "profile/axis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace evenkeel {
namespace {

using testing::ElementsAre;

std::vector<std::string> labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> all;
  for (const Tick& tick : ticks) all.push_back(tick.label);
  return all;
}

constexpr double kMiB = 1 << 20;

TEST(SizeTicks, StepByPowersOfTwo) {
  EXPECT_THAT(labels(size_ticks(530 * kMiB, 4)),
              ElementsAre("0", "128 MiB", "256 MiB", "384 MiB", "512 MiB"));
  EXPECT_THAT(labels(size_ticks(2 * 1024 * kMiB, 4)),
              ElementsAre("0", "512 MiB", "1 GiB", "1.5 GiB", "2 GiB"));
  EXPECT_THAT(labels(size_ticks(3, 4)), ElementsAre("0", "1 B", "2 B", "3 B"));
  EXPECT_THAT(labels(size_ticks(0, 4)), ElementsAre("0"));
}

TEST(CountTicks, StepByOneTwoAndFive) {
  EXPECT_THAT(labels(count_ticks(1100, 2)), ElementsAre("0", "1,000"));
  EXPECT_THAT(labels(count_ticks(40, 4)), ElementsAre("0", "10", "20", "30", "40"));
}

TEST(TimeTicks, StepAsClocksDo) {
  EXPECT_THAT(labels(time_ticks(1, 5)),
              ElementsAre("0 s", "0.2 s", "0.4 s", "0.6 s", "0.8 s", "1 s"));
  EXPECT_THAT(labels(time_ticks(62, 4)), ElementsAre("0 s", "30 s", "60 s"));
  EXPECT_THAT(labels(time_ticks(400, 4)), ElementsAre("0:00", "2:00", "4:00", "6:00"));
  EXPECT_THAT(labels(time_ticks(7200, 4)),
              ElementsAre("0:00 h", "0:30 h", "1:00 h", "1:30 h", "2:00 h"));
  EXPECT_THAT(labels(time_ticks(0, 4)), ElementsAre("0 s"));
}

using Ticks = std::vector<Tick> (*)(double, int);

void check_spacing(Ticks ticks_of, double most, int wanted) {
  const auto ticks = ticks_of(most, wanted);
  RC_ASSERT(ticks.size() >= 1u);
  RC_ASSERT(ticks.size() <= 2u * static_cast<unsigned>(wanted) + 1);
  RC_ASSERT(ticks[0].value == 0);
  RC_ASSERT(ticks.back().value <= most * (1 + 1e-6));
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    RC_ASSERT(ticks[i].value > ticks[i - 1].value);
    RC_ASSERT(ticks[i].label != ticks[i - 1].label);
  }
}

RC_GTEST_PROP(Ticks, AreFewAndInsideAndTellThemselvesApart, ()) {
  const double most = std::pow(2.0, *rc::gen::inRange(0, 6200) / 100.0);
  const int wanted = *rc::gen::inRange(1, 10);
  check_spacing(size_ticks, most, wanted);
  check_spacing(count_ticks, most, wanted);
  if (most < 1e8) check_spacing(time_ticks, most, wanted);
}

}  // namespace
}  // namespace evenkeel
