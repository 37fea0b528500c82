#include "loader/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// The largest difference between the count of a set and its share, over all prefixes.
double worst_deviation(Mixture& mixture, std::uint64_t steps) {
  std::vector<double> counts(mixture.shares().size());
  double worst = 0;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    counts[mixture.next().set] += 1;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const double share = static_cast<double>(mixture.shares()[i]) /
                           static_cast<double>(mixture.period()) * static_cast<double>(step);
      worst = std::max(worst, std::abs(counts[i] - share));
    }
  }
  return worst;
}

RC_GTEST_PROP(Mixture, SharesAreExactToWithinOneSampleAtEveryPrefix, ()) {
  const auto whole =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000)));
  RC_PRE(std::accumulate(whole.begin(), whole.end(), 0) > 0);
  Mixture mixture({whole.begin(), whole.end()});
  RC_ASSERT(worst_deviation(mixture, 5000) < 1.0);
}

TEST(Mixture, KeepsToWeightsThatAreNoFractions) {
  Mixture mixture({std::sqrt(2), std::acos(-1.0), 1e-9, 5});
  EXPECT_EQ(mixture.period(), 1u << 20);
  EXPECT_GE(mixture.shares()[2], 1u);
  EXPECT_LT(worst_deviation(mixture, 100'000), 1.0);
}

// Version 0.1 gave the rest to the largest share, and its states hold the shares.
TEST(Mixture, TheLargestOfFewSetsAbsorbsWhatRoundingLeaves) {
  const double weights[] = {std::sqrt(2.0), std::numbers::pi, std::numbers::e, std::sqrt(3.0)};
  const double sum = std::accumulate(std::begin(weights), std::end(weights), 0.0);
  std::vector<std::uint64_t> expected;
  for (const double weight : weights) {
    expected.push_back(static_cast<std::uint64_t>(weight / sum * (1 << 20)));
  }
  const std::uint64_t others = expected[0] + expected[2] + expected[3];
  EXPECT_EQ(expected[1] + others, (1u << 20) - 3);  // so that the rule matters
  expected[1] = (1u << 20) - others;
  EXPECT_EQ(Mixture({weights[0], weights[1], weights[2], weights[3]}).shares(), expected);
}

// No set gets what the rounding of thousands of others leaves.
TEST(Mixture, EveryOfManySetsHasItsShare) {
  std::vector<double> weights;
  for (std::size_t i = 0; i < 5000; ++i) weights.push_back(1 + static_cast<double>(i % 7) / 3);
  for (const bool tiny : {false, true}) {
    if (tiny) weights.resize(7000, 1e-12);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const Mixture mixture(weights);
    ASSERT_EQ(mixture.period(), 1u << 20);
    const auto& shares = mixture.shares();
    EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::uint64_t{0}), 1u << 20);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double exact = weights[i] / sum * (1 << 20);
      EXPECT_NEAR(static_cast<double>(shares[i]), exact, tiny ? 2 : 1) << i;
    }
  }
}

TEST(Mixture, TakesSimpleFractionsExactly) {
  const Mixture mixture({0.7, 0.2, 0.1});
  EXPECT_EQ(mixture.period(), 10u);
  EXPECT_EQ(mixture.shares(), (std::vector<std::uint64_t>{7, 2, 1}));
  EXPECT_EQ(Mixture({3}).period(), 1u);
}

TEST(Mixture, EachSetIsCountedWithoutGaps) {
  Mixture mixture({5, 3, 0, 1});
  std::vector<std::uint64_t> next(4);
  for (int i = 0; i < 1000; ++i) {
    const Mixture::Draw draw = mixture.next();
    EXPECT_EQ(draw.index, next[draw.set]++);
  }
  EXPECT_EQ(next[2], 0u);
}

RC_GTEST_PROP(Mixture, SeekingIsTheSameAsWalking, ()) {
  const std::vector<double> weights = {1, 2.5, 1.0 / 3, 4};
  Mixture walked(weights), sought(weights);
  const auto far = *rc::gen::inRange<std::uint64_t>(0, 3000);
  while (walked.position() < far) walked.next();
  sought.seek(*rc::gen::inRange<std::uint64_t>(0, 3000));
  sought.seek(far);
  const auto a = walked.next(), b = sought.next();
  RC_ASSERT(a.set == b.set);
  RC_ASSERT(a.index == b.index);
}

TEST(Mixture, BadWeightsAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& weights :
       {std::vector<double>{1, -1}, {nan, 1}, {infinity, 1}, {0, 0}, {}}) {
    EXPECT_THROW(Mixture{weights}, Error);
  }
}

TEST(Mixture, ErrorsHaveAllDigitsOfAWeight) {
  for (const auto& [weights, words] : {std::pair(std::vector{1, -1e-9}, "weight 1 is -1e-09"),
                                       std::pair(std::vector{1e308, 1e308}, "sets add up to inf"),
                                       std::pair(std::vector{0.0, 0.0}, "sets add up to 0\n")}) {
    try {
      const Mixture mixture(weights);
      ADD_FAILURE() << words;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr(words));
    }
  }
}

}  // namespace
}  // namespace evenkeel
