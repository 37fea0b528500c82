// Found by the fuzz target `crops`: each of thousands of sets with a tiny weight gets a share of
// one. The largest set gives up these shares, and its own wrapped below zero.
#include <gtest/gtest.h>

#include <numeric>

#include "evenkeel/error.h"
#include "loader/mixture.h"

namespace evenkeel {
namespace {

TEST(TinyWeights, SharesOfThousandsOfSetsAddUp) {
  std::vector<double> weights(2000, 200);
  weights.resize(4000, 1e-9);
  weights.push_back(0);
  Mixture mixture(weights);
  const auto& shares = mixture.shares();
  EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::uint64_t{0}), mixture.period());
  for (std::size_t set = 0; set < 2000; ++set) {  // equal, except for rounding
    ASSERT_GE(shares[set], 523u) << set;
    ASSERT_LE(shares[set], 524u) << set;
  }
  for (std::size_t set = 2000; set < 4000; ++set) ASSERT_EQ(shares[set], 1u) << set;
  EXPECT_EQ(shares.back(), 0u);
  for (int i = 0; i < 100; ++i) ASSERT_LT(mixture.next().set, 4000u);
}

TEST(TinyWeights, MoreSetsThanThePeriodHasPlacesAreRefused) {
  std::vector<double> weights((1 << 20) + 1, 1e-3);
  weights.push_back(1);
  EXPECT_THROW(Mixture{weights}, Error);
}

}  // namespace
}  // namespace evenkeel
