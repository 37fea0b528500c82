#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "evenkeel/bytes.h"
#include "evenkeel/profile.h"
#include "profile/slope.h"
#include "profile/test_runs.h"

namespace evenkeel {
namespace {

ProfileRun anon_run(double seconds, std::size_t count, const std::function<double(double)>& bytes) {
  return make_run(seconds, count, [&](ProfileSample& sample) {
    sample.anon = static_cast<std::uint64_t>(std::llround(bytes(sample.seconds)));
  });
}

double slope_of(const ProfileRun& run) { return summarize(run, {}).slope_anon.value(); }

TEST(Summary, OfAnEmptyRunIsEmpty) {
  const ProfileSummary summary = summarize(ProfileRun{}, 0);
  EXPECT_EQ(summary.peak_memory, 0u);
  EXPECT_EQ(summary.peak_cache, std::nullopt);
  EXPECT_EQ(summary.slope_rss, std::nullopt);
  EXPECT_EQ(summary.seconds_over_budget, 0);
}

TEST(Summary, EachKindHasItsOwnPeak) {
  ProfileRun run;
  run.samples.resize(3);
  run.samples[0].anon = 100;
  run.samples[0].page_tables = 9;
  run.samples[1].file = 70;
  run.samples[1].shmem = 50;
  run.samples[1].processes = 3;
  run.samples[1].swap = 4;
  run.samples[2].anon = 10;
  run.samples[2].cache = 200;
  run.samples[2].pss = 5;
  const ProfileSummary summary = summarize(run, {});
  EXPECT_EQ(summary.peak_anon, 100u);
  EXPECT_EQ(summary.peak_file, 70u);
  EXPECT_EQ(summary.peak_shmem, 50u);
  EXPECT_EQ(summary.peak_rss, 120u);
  EXPECT_EQ(summary.peak_memory, 210u);
  EXPECT_EQ(summary.peak_page_tables, 9u);
  EXPECT_EQ(summary.peak_swap, 4u);
  EXPECT_EQ(summary.peak_cache, 200u);
  EXPECT_EQ(summary.peak_pss, 5u);
  EXPECT_EQ(summary.most_processes, 3u);
}

TEST(Summary, PeaksOfUnknownValuesAreEmpty) {
  const ProfileSummary summary = summarize(anon_run(1, 3, [](double) { return 5; }), {});
  EXPECT_EQ(summary.peak_cache, std::nullopt);
  EXPECT_EQ(summary.peak_pss, std::nullopt);
}

TEST(Summary, CountersAreThoseOfTheLastSample) {
  const ProfileRun run = make_run(2, 5, [](ProfileSample& sample) {
    sample.disk_read = static_cast<std::uint64_t>(sample.seconds * 100);
    sample.major_faults = static_cast<std::uint64_t>(sample.seconds * 10);
    sample.minor_faults = static_cast<std::uint64_t>(sample.seconds * 4);
    sample.cpu_seconds = sample.seconds / 4;
  });
  const ProfileSummary summary = summarize(run, {});
  EXPECT_EQ(summary.disk_read, 200u);
  EXPECT_EQ(summary.major_faults, 20u);
  EXPECT_EQ(summary.minor_faults, 8u);
  EXPECT_EQ(summary.cpu_seconds, 0.5);
}

RC_GTEST_PROP(Slope, OfAConstantIsZero, ()) {
  const std::uint64_t bytes = *rc::gen::arbitrary<std::uint64_t>() >> *rc::gen::inRange(2, 64);
  const ProfileRun run =
      make_run(*rc::gen::inRange(1, 100000) * 1.1, *rc::gen::inRange<std::size_t>(16, 3000),
               [&](ProfileSample& sample) { sample.anon = bytes; });
  RC_ASSERT(slope_of(run) == 0);
}

RC_GTEST_PROP(Slope, OfALineIsExact, ()) {
  const double seconds = *rc::gen::inRange(1, 10000) * 1.5;
  const double begin = *rc::gen::inRange(0, 1 << 30), end = *rc::gen::inRange(0, 1 << 30);
  const ProfileRun run = anon_run(seconds, *rc::gen::inRange<std::size_t>(16, 3000),
                                  [&](double t) { return begin + (end - begin) * t / seconds; });
  const double a_minute = (end - begin) / seconds * 60;
  // Bytes are rounded: the error is half a byte over the shortest distance between two samples.
  RC_ASSERT(std::abs(slope_of(run) - a_minute) <= std::abs(a_minute) * 1e-3 + 60 * 16 / seconds);
}

RC_GTEST_PROP(Slope, OneSpikeDoesNotMatter, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(64, 3000);
  const double rise = *rc::gen::inRange(0, 1000) * 1000.0;
  ProfileRun run = anon_run(60, count, [&](double t) { return 1e9 + rise * t; });
  run.samples[*rc::gen::inRange<std::size_t>(0, count)].anon = 100_GiB;
  RC_ASSERT(std::abs(slope_of(run) - 60 * rise) < 100);
}

RC_GTEST_PROP(Slope, ASawtoothOfSeveralPeriodsIsNearlyFlat, ()) {
  const int periods = *rc::gen::inRange(16, 200);
  const double seconds = *rc::gen::inRange(10, 1000), period = seconds / (periods + 0.37);
  const double height = 64_MiB;
  const ProfileRun run =
      anon_run(seconds, *rc::gen::inRange<std::size_t>(2000, 8000),
               [&](double t) { return height * (t / period - std::floor(t / period)); });
  const double of_one_tooth = height / period * 60;
  RC_ASSERT(std::abs(slope_of(run)) < of_one_tooth / 50);
}

TEST(Slope, IsTheMedianOfAllPairs) {
  EXPECT_DOUBLE_EQ(median_slope({{0, 0}, {1, 1}, {2, 4}}).value(), 2);  // 1 2 3
  EXPECT_DOUBLE_EQ(median_slope({{0, 0}, {1, 0}, {2, 3}, {3, 3}}).value(),
                   1.25);  // 0 0 1 1.5 1.5 3
  EXPECT_EQ(median_slope({{1, 5}, {1, 7}}), std::nullopt);
  EXPECT_EQ(median_slope({}), std::nullopt);
}

TEST(Slope, IsThatOfTheSecondHalf) {
  const ProfileRun levels_off =
      anon_run(100, 1000, [](double t) { return t < 50 ? t * 1e6 : 50e6; });
  EXPECT_EQ(slope_of(levels_off), 0);
  const ProfileRun begins_late =
      anon_run(100, 1000, [](double t) { return t < 50 ? 0 : (t - 50) * 1e6; });
  EXPECT_NEAR(slope_of(begins_late), 60e6, 60);
}

TEST(Slope, TheSecondHalfIsByTimeAndNotBySamples) {
  // Nine of ten samples are in the first of twenty seconds.
  ProfileRun run = anon_run(1, 900, [](double t) { return t * 1e9; });
  const ProfileRun rest = anon_run(19, 100, [](double) { return 1e9; });
  for (ProfileSample sample : rest.samples) {
    sample.seconds += 1;
    run.samples.push_back(sample);
  }
  EXPECT_EQ(slope_of(run), 0);
}

TEST(Slope, EachKindHasItsOwnSlope) {
  const ProfileRun run = make_run(100, 1000, [](ProfileSample& sample) {
    const auto steps = static_cast<std::uint64_t>(sample.seconds * 1000);
    sample.anon = 1'000'000 + steps * 10;
    sample.file = steps * 20;
    sample.cache = steps * 50;
  });
  const ProfileSummary summary = summarize(run, {});
  EXPECT_NEAR(summary.slope_anon.value(), 60e4, 60);
  EXPECT_NEAR(summary.slope_rss.value(), 180e4, 180);
  EXPECT_NEAR(summary.slope_memory.value(), 360e4, 360);
}

TEST(Slope, IsEmptyForShortRuns) {
  const auto bytes = [](double t) { return t * 1000; };
  EXPECT_EQ(summarize(anon_run(0.99, 1000, bytes), {}).slope_anon, std::nullopt);
  EXPECT_EQ(summarize(anon_run(100, 15, bytes), {}).slope_anon, std::nullopt);
  EXPECT_NE(summarize(anon_run(1, 16, bytes), {}).slope_anon, std::nullopt);
}

TEST(SecondsOverBudget, AreTheTimeBeforeEachSampleThatIsOver) {
  ProfileRun run = anon_run(10, 11, [](double t) { return t >= 3 && t <= 5 ? 200 : 100; });
  EXPECT_DOUBLE_EQ(summarize(run, 150).seconds_over_budget, 3);
  EXPECT_DOUBLE_EQ(summarize(run, 200).seconds_over_budget, 0);
  EXPECT_DOUBLE_EQ(summarize(run, 99).seconds_over_budget, 10);
  EXPECT_DOUBLE_EQ(summarize(run, {}).seconds_over_budget, 0);
}

TEST(SecondsOverBudget, CountPageCacheToo) {
  const ProfileRun run = make_run(10, 11, [](ProfileSample& sample) {
    sample.anon = 10;
    sample.cache = sample.seconds > 5 ? 100 : ProfileSample::kUnknown;
  });
  EXPECT_DOUBLE_EQ(summarize(run, 50).seconds_over_budget, 5);
}

}  // namespace
}  // namespace evenkeel
