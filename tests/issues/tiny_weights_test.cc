// Found by the fuzz target `crops`: thousands of sets with next to no weight get a share of one
// each, and the largest set could not make up for it: its share wrapped below zero.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "evenkeel/error.h"
#include "tokens/mixture.h"

namespace evenkeel {
namespace {

TEST(TinyWeights, SharesOfThousandsOfSetsAddUp) {
  std::vector<double> weights(2000, 200);
  weights.resize(4000, 1e-9);
  weights.push_back(0);
  Mixture mixture(weights);
  const auto& shares = mixture.shares();
  EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::uint64_t{0}), mixture.period());
  for (std::size_t set = 0; set < 4000; ++set) {
    ASSERT_GE(shares[set], 1u) << set;
    ASSERT_LE(shares[set], 2000u) << set;  // nothing wrapped: they have 523, and one has the rest
  }
  EXPECT_EQ(shares.back(), 0u);
  // What is alike stays alike, but for the one that evens it out.
  EXPECT_EQ(std::ranges::count(shares, shares[1]), 1999);
  for (int i = 0; i < 100; ++i) ASSERT_LT(mixture.next().set, 4000u);
}

TEST(TinyWeights, MoreSetsThanThePeriodHasPlacesAreRefused) {
  std::vector<double> weights((1 << 20) + 1, 1e-3);
  weights.push_back(1);
  EXPECT_THROW(Mixture{weights}, Error);
}

}  // namespace
}  // namespace evenkeel
