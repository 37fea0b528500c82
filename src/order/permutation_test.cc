#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "evenkeel/error.h"
#include "evenkeel/order.h"
#include "order/chi_square.h"
#include "tests/sanitizers.h"

namespace evenkeel {
namespace {

bool is_bijection_with_inverse(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  std::vector<bool> seen(n);
  for (std::uint64_t position = 0; position < n; ++position) {
    const std::uint64_t value = permutation(position);
    if (value >= n || seen[value] || permutation.inverse(value) != position) return false;
    seen[value] = true;
  }
  return true;
}

TEST(Permutation, IsABijectionWithInverseForEverySmallSize) {
  for (std::uint64_t n = 1; n <= 4096; n += kSanitized ? 7 : 1) {
    ASSERT_TRUE(is_bijection_with_inverse(n, n * 7, n % 5)) << "n " << n;
  }
}

// Many values at once are computed in another way than one alone.
TEST(Permutation, ManyValuesAreThoseOfEachAlone) {
  for (std::uint64_t n = 1; n <= 300; ++n) {
    const Permutation permutation(n, n * 11, n % 3);
    for (const std::uint64_t world : {1, 2, 3, 50}) {
      Order order;
      order.kind = OrderKind::kShuffled;
      order.seed = n * 11;
      const Sequence sequence(order.at_epoch(n % 3).for_rank(0, world), n);
      std::vector<std::uint64_t> values((n - 1) / world + 1);
      sequence.fill(0, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], permutation(i * world)) << n << " " << world;
      }
    }
  }
}

TEST(Permutation, IsABijectionWithInverseAroundPowersOfTwo) {
  for (unsigned k = 1; k <= 20; ++k) {
    const std::uint64_t power = std::uint64_t{1} << k;
    for (const std::uint64_t n : {power - 1, power, power + 1}) {
      ASSERT_TRUE(is_bijection_with_inverse(n, 1, k)) << "n " << n;
    }
  }
}

TEST(Permutation, InverseUndoesItAtHugeSizes) {
  for (unsigned k = 21; k <= 64; ++k) {
    const std::uint64_t top = k == 64 ? ~std::uint64_t{0} : std::uint64_t{1} << k;
    for (const std::uint64_t n : {top - 1, top, top + (k < 64)}) {
      const Permutation permutation(n, k, 3);
      for (std::uint64_t i = 0; i < 200; ++i) {
        for (const std::uint64_t x : {i, n - 1 - i, uniform_draw(k, 4, i, n)}) {
          ASSERT_LT(permutation(x), n);
          ASSERT_EQ(permutation.inverse(permutation(x)), x) << "n " << n;
          ASSERT_EQ(permutation(permutation.inverse(x)), x) << "n " << n;
        }
      }
    }
  }
}

RC_GTEST_PROP(Permutation, InverseUndoesItForAnySizeAndKey,
              (std::uint64_t seed, std::uint64_t epoch, std::uint64_t x)) {
  const auto bits = *rc::gen::inRange<unsigned>(0, 64);
  const std::uint64_t n = (*rc::gen::arbitrary<std::uint64_t>() >> bits) | 1;
  const Permutation permutation(n, seed, epoch);
  RC_ASSERT(permutation.inverse(permutation(x % n)) == x % n);
}

constexpr std::uint64_t kShuffles = kSanitized ? 4000 : 20000;

// Shuffle number i of a test. Its seeds and epochs differ in few bits, like those that users
// choose.
Permutation shuffle(std::uint64_t n, std::uint64_t i) { return {n, i / 100, i % 100}; }

TEST(Permutation, MakesEveryArrangementOfFewRowsEquallyLikely) {
  for (const std::uint64_t n : {2, 3, 4, 5}) {
    std::vector<std::uint64_t> rows(n);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<std::vector<std::uint64_t>> arrangements;
    do arrangements.push_back(rows);
    while (std::next_permutation(rows.begin(), rows.end()));

    std::vector<std::uint64_t> counts(arrangements.size());
    for (std::uint64_t i = 0; i < kShuffles; ++i) {
      const Permutation permutation = shuffle(n, i);
      for (std::uint64_t p = 0; p < n; ++p) rows[p] = permutation(p);
      const auto at = std::lower_bound(arrangements.begin(), arrangements.end(), rows);
      ++counts[at - arrangements.begin()];
    }
    EXPECT_LT(std::abs(chi_square_z(counts)), kMaxDeviation) << "n " << n;
  }
}

class FewRows : public testing::TestWithParam<std::uint64_t> {};

TEST_P(FewRows, EachComesAtEachPositionEquallyOften) {
  const std::uint64_t n = GetParam();
  for (const std::uint64_t position : {std::uint64_t{0}, n / 2, n - 1}) {
    std::vector<std::uint64_t> counts(n);
    for (std::uint64_t i = 0; i < kShuffles; ++i) ++counts[shuffle(n, i)(position)];
    EXPECT_LT(std::abs(chi_square_z(counts)), kMaxDeviation) << "position " << position;
  }
}

TEST_P(FewRows, EachPairIsEquallyOftenNeighbours) {
  const std::uint64_t n = GetParam();
  std::vector<std::uint64_t> counts(n * (n - 1));
  for (std::uint64_t i = 0; i < kShuffles; ++i) {
    const Permutation permutation = shuffle(n, i);
    const std::uint64_t position = i % (n - 1);
    const std::uint64_t first = permutation(position), second = permutation(position + 1);
    ++counts[first * (n - 1) + second - (second > first)];
  }
  EXPECT_LT(std::abs(chi_square_z(counts)), kMaxDeviation);
}

INSTANTIATE_TEST_SUITE_P(Permutation, FewRows,
                         testing::Values(2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64));

// 256 rows fill the narrowest network, so cycle walking adds nothing to its mixing: the hardest
// case.
TEST(Permutation, DifferencesAreUniformInTheNarrowestNetwork) {
  for (const std::uint64_t distance : {1, 16}) {  // in the low half only, in the high half only
    std::vector<std::uint64_t> counts(255);
    for (std::uint64_t i = 0; i < kShuffles; ++i) {
      const Permutation permutation = shuffle(256, i);
      ++counts[(permutation(0) ^ permutation(distance)) - 1];
    }
    EXPECT_LT(std::abs(chi_square_z(counts)), kMaxDeviation) << "distance " << distance;
  }
}

// Chi-square of the joint distribution of two functions of a position, each in 32 equal bins.
template <typename First, typename Second>
double joint_z(std::uint64_t n, First first, Second second) {
  constexpr std::uint64_t kBins = 32, kSamples = 200000;
  std::vector<std::uint64_t> counts(kBins * kBins);
  const auto bin = [&](std::uint64_t value) { return value / (n / kBins); };
  for (std::uint64_t i = 0; i < kSamples; ++i) ++counts[bin(first(i)) * kBins + bin(second(i))];
  return chi_square_z(counts);
}

class ManyRows : public testing::TestWithParam<std::uint64_t> {};

TEST_P(ManyRows, NeighboursInOneShuffleAreUnrelated) {
  const Permutation permutation(GetParam(), 5, 0);
  for (const std::uint64_t distance : {1, 2, 8, 1 << 10, 1 << 20}) {
    const auto here = [&](std::uint64_t i) { return permutation(i + (i / distance) * distance); };
    const auto there = [&](std::uint64_t i) {
      return permutation(i + (i / distance) * distance + distance);
    };
    EXPECT_LT(std::abs(joint_z(GetParam(), here, there)), kMaxDeviation) << "distance " << distance;
  }
}

TEST_P(ManyRows, NeighbouringEpochsAndSeedsAreUnrelated) {
  const Permutation permutation(GetParam(), 5, 0), epoch(GetParam(), 5, 1), seed(GetParam(), 6, 0);
  EXPECT_LT(std::abs(joint_z(GetParam(), permutation, epoch)), kMaxDeviation);
  EXPECT_LT(std::abs(joint_z(GetParam(), permutation, seed)), kMaxDeviation);
}

INSTANTIATE_TEST_SUITE_P(Permutation, ManyRows,
                         testing::Values(std::uint64_t{1} << 24, std::uint64_t{100000000},
                                         std::uint64_t{1} << 40, std::uint64_t{1} << 63));

TEST(Permutation, RefusesZeroRowsAndPositionsOutside) {
  const auto kind = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kSystem;
  };
  EXPECT_EQ(kind([] { Permutation(0, 1, 1); }), ErrorKind::kInvalid);
  EXPECT_EQ(kind([] { Permutation(10, 1, 1)(10); }), ErrorKind::kIndex);
  EXPECT_EQ(kind([] { Permutation(10, 1, 1).inverse(10); }), ErrorKind::kIndex);
}

}  // namespace
}  // namespace evenkeel
