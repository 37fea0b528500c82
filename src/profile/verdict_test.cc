#include "profile/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "evenkeel/bytes.h"
#include "profile/test_runs.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

std::string trend(double seconds, std::size_t count, const std::function<double(double)>& bytes) {
  return trend_of(make_run(seconds, count, [&](ProfileSample& sample) {
                    sample.anon = static_cast<std::uint64_t>(std::llround(bytes(sample.seconds)));
                  }).samples);
}

constexpr double kMebibyte = 1 << 20;

TEST(Trend, AClimbThatEndsIsReported) {
  const auto climb = [](double t) { return std::min(t / 2, 1.0) * 1945 * kMebibyte; };
  EXPECT_EQ(trend(4, 400, climb), "climbed 1.9 GiB in the first 1.9 s, then flat");
}

TEST(Trend, NoiseAfterAClimbIsFlatAndNotExtrapolated) {
  const auto climb = [](double t) {
    return t < 2 ? t * 950 * kMebibyte : (1900 + (t - 2) / 15) * kMebibyte;
  };
  EXPECT_EQ(trend(4, 400, climb), "climbed 1.86 GiB in the first 1.9 s, then flat");
}

TEST(Trend, ALeakAfterAClimbIsASlope) {
  const auto leak = [](double t) {
    return t < 5 ? t * 100 * kMebibyte : (500 + (t - 5) / 6) * kMebibyte;
  };
  EXPECT_EQ(trend(120, 1200, leak), "climbed 517 MiB in the first 5.0 s, then +10 MiB/min");
}

TEST(Trend, ARiseThatNeverEndsIsASlope) {
  EXPECT_EQ(trend(60, 600, [](double t) { return (100 + t) * kMebibyte; }), "+60 MiB/min");
}

TEST(Trend, ARiseFromNothingThatNeverEndsIsNoClimb) {
  const auto rise = [](double t) { return t * 100 * kMebibyte; };
  EXPECT_EQ(climb_end(make_run(1.3, 130,
                               [&](ProfileSample& sample) {
                                 sample.anon = static_cast<std::uint64_t>(rise(sample.seconds));
                               })
                          .samples),
            0u);
  EXPECT_EQ(trend(10, 600, rise), "rose by 1000 MiB in 10 s");
}

TEST(Trend, AShortStopAtTheEndIsNotTheEndOfARise) {
  const ProfileRun run = make_run(1.5, 150, [](ProfileSample& sample) {
    sample.anon = static_cast<std::uint64_t>(std::min(sample.seconds, 1.2) * 100 * kMebibyte);
  });
  EXPECT_EQ(climb_end(run.samples), 0u);
  EXPECT_GT(summarize(run, {}).slope_anon.value(), 1000 * kMebibyte);
}

TEST(Trend, AShortRiseIsNotExtrapolated) {
  EXPECT_EQ(trend(10, 600, [](double t) { return (100 + t) * kMebibyte; }),
            "rose by 10 MiB in 10 s");
  EXPECT_EQ(trend(10, 600, [](double t) { return (100 - t) * kMebibyte; }),
            "fell by 10 MiB in 10 s");
}

TEST(Trend, AConstantIsFlat) {
  EXPECT_EQ(trend(60, 600, [](double) { return 100 * kMebibyte; }), "flat");
}

TEST(Trend, AShortRunIsTooShort) {
  EXPECT_EQ(trend(0.9, 90, [](double) { return 1.0; }), "too short to tell");
  EXPECT_EQ(trend(60, 15, [](double) { return 1.0; }), "too short to tell");
  EXPECT_EQ(trend_of({}), "too short to tell");
}

TEST(SlopeWords, NameTheDirectionAndTheSpeed) {
  EXPECT_EQ(slope_words(std::nullopt, 100, 0), "too short to tell");
  EXPECT_EQ(slope_words(0, 100, 0), "flat");
  EXPECT_EQ(slope_words(-1000, 100, 0), "flat");
  EXPECT_EQ(slope_words(12.5 * kMebibyte, 100, 0), "+12.5 MiB/min");
  EXPECT_EQ(slope_words(-12.5 * kMebibyte, 100, 0), "-12.5 MiB/min");
}

TEST(SlopeWords, AFewKiBInASecondAreNotExtrapolated) {
  EXPECT_EQ(slope_words(4.28 * kMebibyte, 2, 1_GiB), "flat");
  EXPECT_EQ(slope_words(4.28 * kMebibyte, 60, 1_GiB), "+4.28 MiB/min");
}

ProfileSummary with_peak(std::uint64_t memory) {
  ProfileSummary summary;
  summary.peak_memory = memory;
  return summary;
}

TEST(MemoryVerdict, NamesThePeakAndTheBudget) {
  EXPECT_EQ(memory_verdict(with_peak(12_MiB), std::nullopt), "Memory reached 12 MiB.");
  EXPECT_EQ(memory_verdict(with_peak(12_MiB), 64_MiB),
            "Memory stayed within the budget of 64 MiB. It reached 12 MiB.");
  EXPECT_EQ(memory_verdict(with_peak(64_MiB), 64_MiB),
            "Memory stayed within the budget of 64 MiB. It reached 64 MiB.");
  ProfileSummary over = with_peak(65_MiB);
  over.seconds_over_budget = 2.25;
  over.slope_memory = 0;
  over.trend = "climbed 60 MiB in the first 2 s, then flat";
  EXPECT_EQ(memory_verdict(over, 64_MiB),
            "Memory exceeded the budget of 64 MiB for 2.2 s. It reached 65 MiB: climbed 60 MiB in "
            "the first 2 s, then flat.");
}

TEST(LimitVerdict, EachCountsItsOwnKindOfMemory) {
  ProfileSummary summary;
  summary.peak_rss = 3_GiB;
  summary.peak_memory = 2_GiB;
  summary.peak_unreclaimable = 200_MiB;
  summary.file_at_peak = 1_GiB;
  const auto limits = limits_of(summary);
  ASSERT_EQ(limits.size(), 3u);
  EXPECT_EQ(limits[0].bytes, 3_GiB);
  EXPECT_THAT(limits[0].effect, HasSubstr("ends the job below 3 GiB"));
  EXPECT_EQ(limits[1].bytes, 200_MiB);
  EXPECT_THAT(limits[1].effect, HasSubstr("below 200 MiB: it takes file pages back first"));
  EXPECT_EQ(limits[2].bytes, 2_GiB);
  EXPECT_EQ(reclaimable_words(summary),
            "1 GiB of it are file pages, which the kernel can take back; 1 GiB are the program's "
            "own.");
}

}  // namespace
}  // namespace evenkeel
