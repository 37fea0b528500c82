#include "evenkeel/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "evenkeel/error.h"
#include "order/chi_square.h"

namespace evenkeel {
namespace {

std::vector<std::uint64_t> all(const Sequence& sequence) {
  std::vector<std::uint64_t> rows;
  for (std::uint64_t p = 0; p < sequence.size(); ++p) rows.push_back(sequence[p]);
  return rows;
}

Order any_order() {
  return {*rc::gen::element(OrderKind::kSequential, OrderKind::kShuffled, OrderKind::kRandom),
          *rc::gen::arbitrary<std::uint64_t>(), *rc::gen::arbitrary<std::uint64_t>(), 0, 1};
}

TEST(UniformDraw, IsUniform) {
  for (const std::uint64_t n : {2, 3, 10, 97, 1000}) {
    std::vector<std::uint64_t> counts(n);
    for (std::uint64_t i = 0; i < 100000; ++i) ++counts[uniform_draw(9, n, i, n)];
    EXPECT_LT(std::abs(chi_square_z(counts)), kMaxDeviation) << "n " << n;
  }
}

TEST(UniformDraw, IsUniformOverSeedsAndOverEpochs) {
  std::vector<std::uint64_t> by_seed(100), by_epoch(100);
  for (std::uint64_t i = 0; i < 100000; ++i) {
    ++by_seed[uniform_draw(i, 0, 0, 100)];
    ++by_epoch[uniform_draw(0, i, 0, 100)];
  }
  EXPECT_LT(std::abs(chi_square_z(by_seed)), kMaxDeviation);
  EXPECT_LT(std::abs(chi_square_z(by_epoch)), kMaxDeviation);
}

TEST(UniformDraw, UsesTheWholeRangeOfHugeSizes) {
  const std::uint64_t n = ~std::uint64_t{0};
  std::vector<std::uint64_t> top(64), bottom(64);
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const std::uint64_t draw = uniform_draw(1, 1, i, n);
    ++top[draw >> 58];
    ++bottom[draw & 63];
  }
  EXPECT_LT(std::abs(chi_square_z(top)), kMaxDeviation);
  EXPECT_LT(std::abs(chi_square_z(bottom)), kMaxDeviation);
}

RC_GTEST_PROP(UniformDraw, StaysBelowN,
              (std::uint64_t seed, std::uint64_t epoch, std::uint64_t counter, std::uint64_t n)) {
  RC_PRE(n > 0);
  RC_ASSERT(uniform_draw(seed, epoch, counter >> 1, n) < n);
}

TEST(UniformDraw, RefusesNothingToDrawFromAndCountersOfOtherStreams) {
  EXPECT_THROW(uniform_draw(1, 1, 0, 0), Error);
  EXPECT_NO_THROW(uniform_draw(1, 1, (std::uint64_t{1} << 63) - 1, 5));
  EXPECT_THROW(uniform_draw(1, 1, std::uint64_t{1} << 63, 5), Error);
}

TEST(Sequence, SequentialIsTheRowsAsTheyLie) {
  EXPECT_THAT(all({sequential(), 5}), testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(all({sequential().for_rank(1, 3), 8}), testing::ElementsAre(1, 4, 7));
}

TEST(Sequence, ShuffledIsThePermutationAndRandomTheDraws) {
  const Permutation permutation(1000, 3, 4);
  const Sequence shuffle(shuffled(3, 4), 1000), draws(random(3, 4), 1000);
  for (std::uint64_t p = 0; p < 1000; ++p) {
    ASSERT_EQ(shuffle[p], permutation(p));
    ASSERT_EQ(draws[p], uniform_draw(3, 4, p, 1000));
  }
}

RC_GTEST_PROP(Sequence, RanksOfAnyWorldInterleaveToTheGlobalOrder, ()) {
  const Order order = any_order();
  const auto rows = *rc::gen::inRange<std::uint64_t>(0, 600);
  const auto world = *rc::gen::inRange<std::uint64_t>(1, 40);
  const std::vector<std::uint64_t> global = all({order, rows});
  RC_ASSERT(global.size() == rows);

  std::uint64_t seen = 0;
  for (std::uint64_t rank = 0; rank < world; ++rank) {
    const std::vector<std::uint64_t> mine = all({order.for_rank(rank, world), rows});
    for (std::uint64_t p = 0; p < mine.size(); ++p) RC_ASSERT(mine[p] == global[p * world + rank]);
    seen += mine.size();
  }
  RC_ASSERT(seen == rows);
}

RC_GTEST_PROP(Sequence, FillGivesWhatIndexingGives, ()) {
  const auto world = *rc::gen::inRange<std::uint64_t>(1, 9);
  const Order order = any_order().for_rank(*rc::gen::inRange<std::uint64_t>(0, world), world);
  const auto bits = *rc::gen::inRange<unsigned>(1, 63);
  const std::uint64_t n = *rc::gen::inRange<std::uint64_t>(1, std::uint64_t{1} << bits);
  const Sequence sequence(order, n);
  const auto first = *rc::gen::inRange<std::uint64_t>(0, sequence.size() + 1);
  const std::uint64_t most = std::min<std::uint64_t>(sequence.size() - first, 700);
  std::vector<std::uint64_t> rows(*rc::gen::inRange<std::uint64_t>(0, most + 1));
  sequence.fill(first, rows);

  const Permutation permutation(n, order.seed, order.epoch);
  for (std::uint64_t i = 0; i < rows.size(); ++i) {
    RC_ASSERT(rows[i] == sequence[first + i]);
    if (order.kind == OrderKind::kShuffled) {
      RC_ASSERT(rows[i] == permutation((first + i) * world + order.rank));
    }
  }
}

TEST(Sequence, NoRowsMakeAnEmptySequence) {
  for (const Order& order : {sequential(), shuffled(1), random(1)}) {
    const Sequence sequence(order, 0);
    EXPECT_EQ(sequence.size(), 0u);
    EXPECT_NO_THROW(sequence.fill(0, {}));
    EXPECT_THROW(sequence[0], Error);
  }
}

TEST(Sequence, ARankBeyondTheRowsHasNothing) {
  EXPECT_EQ(Sequence(shuffled(1).for_rank(5, 8), 5).size(), 0u);
  EXPECT_EQ(Sequence(shuffled(1).for_rank(4, 8), 5).size(), 1u);
}

TEST(Sequence, HugeSizesAndWorldsDoNotOverflow) {
  const std::uint64_t huge = ~std::uint64_t{0};
  EXPECT_EQ(Sequence(sequential(), huge).size(), huge);
  EXPECT_EQ(Sequence(sequential(), huge)[huge - 1], huge - 1);
  const Sequence last(sequential().for_rank(huge - 1, huge), huge);
  EXPECT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0], huge - 1);
}

TEST(Sequence, ReadingPastTheEndIsAnError) {
  const Sequence sequence(shuffled(1).for_rank(1, 2), 9);
  std::vector<std::uint64_t> rows(3);
  EXPECT_NO_THROW(sequence.fill(1, rows));
  EXPECT_THROW(sequence.fill(2, rows), Error);
  EXPECT_THROW(sequence.fill(~std::uint64_t{0}, rows), Error);
  EXPECT_THROW(sequence[4], Error);
}

std::string refusal(const Order& order) {
  try {
    Sequence(order, 10);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    EXPECT_NE(error.hint_text(), "");
    return error.what();
  }
  return "accepted";
}

TEST(Sequence, RefusesARankOutsideTheWorldAndSaysTheNumbers) {
  EXPECT_THAT(refusal(sequential().for_rank(0, 0)), testing::HasSubstr("world size is 0"));
  EXPECT_THAT(refusal(sequential().for_rank(8, 8)),
              testing::HasSubstr("rank 8 is outside a world of 8"));
  EXPECT_EQ(refusal(sequential().for_rank(7, 8)), "accepted");
}

TEST(Order, DescribesWhatMatters) {
  EXPECT_EQ(shuffled(7).for_rank(1, 8).describe(), "shuffled, seed 7, epoch 0, rank 1 of 8");
  EXPECT_EQ(random(7, 2).describe(), "random, seed 7, epoch 2");
  EXPECT_EQ(sequential().describe(), "sequential");
}

}  // namespace
}  // namespace evenkeel
