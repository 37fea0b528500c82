// labels: threads
#include "evenkeel/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "evenkeel/bytes.h"
#include "format/test_files.h"
#include "prepare/kll_sketch.h"
#include "prepare/number_stats.h"

namespace evenkeel {
namespace {

// 0 .. count - 1, in an order without a pattern that could favour a sketch. Cubes are a permutation
// if `count` is a prime and 3 does not divide count - 1.
std::vector<double> mixed_numbers(std::uint64_t count, std::uint64_t seed) {
  std::vector<double> numbers(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    numbers[i] = static_cast<double>(i * i % count * i % count * (seed + 1) % count);
  }
  return numbers;
}

// The largest rank error, as a share.
double worst_rank_error(const KllSketch& sketch, std::size_t count) {
  double worst = 0;
  std::uint64_t before = 0;
  for (const auto& [number, upto] : sketch.cumulated()) {
    // The rank of `number` is `number` itself; the sketch says that it is in before + 1 .. upto.
    worst = std::max(worst, std::abs(number - double(before)) / double(count));
    before = upto;
  }
  return worst;
}

TEST(KllSketch, PlacesAreRightToWithinItsError) {
  constexpr std::size_t kCount = 50'021;
  for (const bool sorted : {false, true}) {
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      KllSketch sketch(256, seed);
      std::vector<double> numbers = mixed_numbers(kCount, seed);
      if (sorted) std::ranges::sort(numbers);
      for (std::size_t at = 0; at < kCount; at += 1'000) {
        sketch.add(std::span(numbers).subspan(at, std::min<std::size_t>(1'000, kCount - at)));
      }
      EXPECT_EQ(sketch.count(), kCount);
      EXPECT_LT(worst_rank_error(sketch, kCount), 2 * KllSketch::rank_error(256));
      std::uint64_t kept = sketch.cumulated().size();
      EXPECT_LT(kept * sizeof(double), KllSketch::memory(256));
    }
  }
}

// On average, 2 of 200 sketches may have a larger error.
TEST(KllSketch, NinetyNineOfAHundredAreRightToWithinTheError) {
  constexpr std::size_t kCount = 20'021;
  std::uint64_t worse = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    KllSketch sketch(64, seed);
    sketch.add(mixed_numbers(kCount, seed));
    worse += worst_rank_error(sketch, kCount) > KllSketch::rank_error(64) ? 1 : 0;
  }
  EXPECT_LE(worse, 4u);
}

TEST(KllSketch, KeepsAllThatFits) {
  KllSketch sketch(101, 1);
  const auto numbers = mixed_numbers(101, 3);
  for (const double number : numbers) sketch.add({&number, 1});
  const auto all = sketch.cumulated();
  ASSERT_EQ(all.size(), 101u);
  for (std::size_t i = 0; i < 101; ++i) EXPECT_EQ(all[i], std::pair(double(i), i + 1));
}

TEST(NumberCollector, IsStable) {
  NumberCollector collector(64, 0);
  for (int i = 0; i < 1'000; ++i) {
    double pair[] = {1e9 + 1, 1e9 - 1};
    collector.add(pair);
  }
  double odd[] = {std::nan(""), INFINITY, -INFINITY};
  collector.add(odd);
  const NumberStats stats = collector.result({});
  EXPECT_EQ(stats.count, 2'000u);
  EXPECT_DOUBLE_EQ(stats.mean, 1e9);
  EXPECT_NEAR(stats.variance, 1, 1e-9);
  EXPECT_EQ(stats.nan, 1u);
  NumberCollector large(64, 0);
  double most[] = {1.5e308, 1.5e308, 1.5e308};
  large.add(most);
  EXPECT_DOUBLE_EQ(large.result({}).mean, 1.5e308);
}

class StatsTest : public FileTest {};

// There are enough rows for several threads, so columns are divided among them.
TEST_F(StatsTest, ColumnsAreTheSameForEveryBudget) {
  std::vector<float> values(300'000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 3) + static_cast<float>(i / 3 % 100);
  }
  StatsOptions options;
  options.input = {.paths = {write("in", {reinterpret_cast<const char*>(values.data()),
                                          values.size() * sizeof(float)})},
                   .dtype = DType::of<float>(),
                   .shape = {-1, 3}};
  std::vector<double> medians;
  for (const std::uint64_t budget : {4_MiB, 64_MiB}) {
    options.budget = budget;
    const StatsReport report = stats(options);
    EXPECT_EQ(report.items, 100'000u);
    ASSERT_EQ(report.columns.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(report.columns[i].min, double(i));
      EXPECT_EQ(report.columns[i].max, 99.0 + double(i));
      EXPECT_NEAR(report.columns[i].mean, 49.5 + double(i), 1e-9);
      EXPECT_NEAR(report.columns[i].variance, 833.25, 1e-6);
      medians.push_back(report.columns[i].quantiles[3] - double(i));
      EXPECT_NEAR(medians.back(), 49.5, 2);
    }
    EXPECT_LE(options.budget.peak(), budget);
    EXPECT_EQ(options.budget.in_use(), 0u);
  }
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(medians[i], medians[i + 3]);
}

}  // namespace
}  // namespace evenkeel
