#include "tokens/crop_order.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

#include "evenkeel/error.h"
#include "order/chi_square.h"

namespace evenkeel {
namespace {

TEST(CropOrder, RandomStartsAreUniformOverAllThatFit) {
  // n - T = 96 starts: 0 .. 95.
  CropSequence crops(100, 4, CropOrder::kRandom, 11);
  std::vector<std::uint64_t> counts(96);
  for (std::uint64_t i = 0; i < 96'000; ++i) ++counts.at(crops.at(i).row);
  EXPECT_LT(std::abs(chi_square_z(counts)), kMaxDeviation);
}

RC_GTEST_PROP(CropOrder, ShuffledGivesEveryAlignedBlockOnceAnEpoch, ()) {
  const auto block = *rc::gen::inRange<std::uint64_t>(1, 50);
  const auto tokens = block + 1 + *rc::gen::inRange<std::uint64_t>(0, 3000);
  CropSequence crops(tokens, block, CropOrder::kShuffled, *rc::gen::arbitrary<std::uint64_t>());
  const std::uint64_t blocks = (tokens - 1) / block;
  RC_ASSERT(crops.epoch_samples() == blocks);
  for (const std::uint64_t epoch : {0, 1, 7}) {
    std::set<std::uint64_t> starts;
    for (std::uint64_t i = 0; i < blocks; ++i) {
      const SampleOrder::Place crop = crops.at(epoch * blocks + i);
      RC_ASSERT(crop.epoch == epoch);
      RC_ASSERT(crop.row % block == 0u);
      RC_ASSERT(crop.row + block + 1 <= tokens);
      starts.insert(crop.row);
    }
    RC_ASSERT(starts.size() == blocks);
  }
}

RC_GTEST_PROP(CropOrder, CoveringShowsEachTokenOnceAnEpochButForTheEnds, ()) {
  const auto block = *rc::gen::inRange<std::uint64_t>(1, 40);
  const auto tokens = 2 * block + *rc::gen::inRange<std::uint64_t>(0, 2000);
  CropSequence crops(tokens, block, CropOrder::kCovering, *rc::gen::arbitrary<std::uint64_t>());
  const std::uint64_t blocks = crops.epoch_samples();
  for (const std::uint64_t epoch : {0, 3}) {
    std::vector<int> seen(tokens);
    for (std::uint64_t i = 0; i < blocks; ++i) {
      const std::uint64_t start = crops.at(epoch * blocks + i).row;
      RC_ASSERT(start + block + 1 <= tokens);  // y has its last token too
      for (std::uint64_t t = start; t < start + block; ++t) RC_ASSERT(++seen[t] == 1);
    }
    RC_ASSERT(tokens - blocks * block < 2 * block);
  }
}

TEST(CropOrder, CoveringNeverCutsTheSameWayTwiceInBlockSizeEpochs) {
  constexpr std::uint64_t kBlock = 24;
  CropSequence crops(1000, kBlock, CropOrder::kCovering, 5);
  std::set<std::uint64_t> phases;
  for (std::uint64_t epoch = 0; epoch < kBlock; ++epoch) {
    phases.insert(crops.at(epoch * crops.epoch_samples()).row % kBlock);
  }
  EXPECT_EQ(phases.size(), kBlock);
}

TEST(CropOrder, AnyPositionIsReachedAtOnce) {
  CropSequence walked(488'000'000ull * 1024, 1024, CropOrder::kShuffled, 3);
  CropSequence sought(488'000'000ull * 1024, 1024, CropOrder::kShuffled, 3);
  walked.at(0);
  EXPECT_EQ(walked.at(244'000'000).row, sought.at(244'000'000).row);
}

TEST(CropOrder, TooFewTokensAreRefusedWithTheNumbers) {
  for (const auto& [order, tokens] :
       {std::pair{CropOrder::kRandom, 8}, {CropOrder::kShuffled, 8}, {CropOrder::kCovering, 15}}) {
    try {
      CropSequence(static_cast<std::uint64_t>(tokens), 8, order, 0);
      FAIL() << crop_order_name(order);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
      EXPECT_NE(std::string(error.what()).find("there are " + std::to_string(tokens)),
                std::string::npos)
          << error.what();
    }
  }
  EXPECT_NO_THROW(CropSequence(9, 8, CropOrder::kRandom, 0));
  EXPECT_NO_THROW(CropSequence(9, 8, CropOrder::kShuffled, 0));
  EXPECT_NO_THROW(CropSequence(16, 8, CropOrder::kCovering, 0));
}

TEST(CropOrder, NamesAreReadAndOthersRefused) {
  for (const char* name : {"random", "shuffled", "covering"}) {
    EXPECT_EQ(crop_order_name(parse_crop_order(name)), name);
  }
  EXPECT_THROW(parse_crop_order("sorted"), Error);
}

}  // namespace
}  // namespace evenkeel
