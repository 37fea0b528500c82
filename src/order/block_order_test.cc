#include "order/block_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "evenkeel/error.h"
#include "order/chi_square.h"
#include "tests/sanitizers.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

std::vector<std::uint64_t> all_rows(const Order& order, std::uint64_t rows) {
  const Sequence sequence(order, rows);
  std::vector<std::uint64_t> found(sequence.size());
  sequence.fill(0, found);
  return found;
}

// Whether every row comes once and `find` returns its position.
bool is_epoch(const Order& order, std::uint64_t rows) {
  const Sequence sequence(order, rows);
  const std::vector<std::uint64_t> found = all_rows(order, rows);
  std::vector<bool> seen(rows);
  for (std::uint64_t position = 0; position < rows; ++position) {
    const std::uint64_t row = found[position];
    if (row >= rows || seen[row] || sequence.find(row) != position) return false;
    seen[row] = true;
  }
  return true;
}

TEST(BlockOrder, HasEveryRowOnceAndAnInverseForEverySmallSize) {
  for (std::uint64_t rows = 1; rows <= 65; rows += rows < 20 ? 1 : 9) {
    for (const std::uint64_t block : {1, 2, 7, 64}) {
      for (const std::uint64_t window : {1, 2, 5}) {
        for (const std::uint64_t streams : {1, 3, 64}) {
          ASSERT_TRUE(is_epoch(block_shuffled(rows, block, {block, window, streams}), rows))
              << rows << " rows, block " << block << ", window " << window << ", streams "
              << streams;
        }
      }
    }
  }
}

RC_GTEST_PROP(BlockOrder, HasEveryRowOnceAndAnInverse, (std::uint64_t seed, std::uint64_t epoch)) {
  const auto rows = *rc::gen::inRange<std::uint64_t>(1, kSanitized ? 600 : 3000);
  const BlockOptions blocks{*rc::gen::inRange<std::uint64_t>(1, 200),
                            *rc::gen::inRange<std::uint64_t>(1, 50),
                            *rc::gen::inRange<std::uint64_t>(1, 100)};
  RC_ASSERT(is_epoch(block_shuffled(seed, epoch, blocks), rows));
}

RC_GTEST_PROP(BlockOrder, IndexingIsFillingAndTheInverseLeadsBackAtHugeSizes,
              (std::uint64_t seed, std::uint64_t epoch, std::uint64_t at)) {
  const std::uint64_t rows = *rc::gen::arbitrary<std::uint64_t>() | 1ULL << 40;
  const BlockOptions blocks{*rc::gen::inRange<std::uint64_t>(1, 1 << 20),
                            *rc::gen::inRange<std::uint64_t>(1 << 12, 1 << 20), 64};
  const Sequence sequence(block_shuffled(seed, epoch, blocks), rows);
  const std::uint64_t position = at % rows;
  RC_ASSERT(sequence[position] < rows);
  RC_ASSERT(sequence.find(sequence[position]) == position);
  RC_ASSERT(sequence[*sequence.find(position)] == position);
}

TEST(BlockOrder, APartOfASequenceIsTheSameHoweverItIsAskedFor) {
  for (const std::uint64_t world : {1, 3}) {
    const Sequence sequence(block_shuffled(5, 1, {10, 8, 12}).for_rank(0, world), 1003);
    for (const std::uint64_t count : {1, 7, 64, 300}) {
      for (std::uint64_t first = 0; first + count <= sequence.size(); first += 13) {
        std::vector<std::uint64_t> rows(count);
        sequence.fill(first, rows);
        for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(rows[i], sequence[first + i]);
      }
    }
  }
}

TEST(BlockOrder, TheGlobalSequenceIsTheSameForEveryWorldThatDividesTheStreams) {
  for (const std::uint64_t rows : {1, 11, kSanitized ? 241 : 960, kSanitized ? 251 : 1003}) {
    // Windows of 60 and of 70 rows: 70 is not a multiple of the streams.
    for (const BlockOptions& blocks : {BlockOptions{10, 6, 12}, BlockOptions{10, 7, 12}}) {
      const std::vector<std::uint64_t> global = all_rows(block_shuffled(3, 4, blocks), rows);
      for (const std::uint64_t world : {2, 3, 4, 6, 12}) {
        for (std::uint64_t rank = 0; rank < world; ++rank) {
          const Order order = block_shuffled(3, 4, blocks).for_rank(rank, world);
          const std::vector<std::uint64_t> own = all_rows(order, rows);
          for (std::uint64_t i = 0; i < own.size(); ++i) {
            ASSERT_EQ(own[i], global[i * world + rank]);
            ASSERT_EQ(Sequence(order, rows).find(own[i]), i);
            const auto other = Sequence(order.for_rank((rank + 1) % world, world), rows);
            ASSERT_EQ(other.find(own[i]), std::nullopt);
          }
        }
      }
    }
  }
}

// Does what a reader does: reads the runs of a window, then takes each row from its place.
TEST(BlockOrder, RunsAndPlacesGiveTheRowsOfTheSequence) {
  for (const std::uint64_t rows : {1, 5, 60, 999, 1003}) {
    for (const BlockOptions& blocks :
         {BlockOptions{10, 6, 12}, BlockOptions{10, 7, 12}, BlockOptions{7, 1, 12},
          BlockOptions{2000, 3, 4}, BlockOptions{1, 24, 12}}) {
      for (const std::uint64_t world : {1, 2, 4}) {
        std::vector<bool> read(rows);
        for (std::uint64_t rank = 0; rank < world; ++rank) {
          const Order order = block_shuffled(8, 2, blocks).for_rank(rank, world);
          const std::vector<std::uint64_t> wanted = all_rows(order, rows);
          const BlockOrder reader(order, rows);
          std::vector<RowRun> runs;
          ASSERT_EQ(reader.first_position(reader.windows()), wanted.size());
          for (std::uint64_t window = 0; window < reader.windows(); ++window) {
            reader.runs(window, runs);
            std::vector<std::uint64_t> part;
            for (const RowRun& run : runs) {
              for (std::uint64_t i = 0; i < run.count; ++i) {
                part.push_back(run.start + i);
                ASSERT_FALSE(read[run.start + i]) << "two ranks or windows read one row";
                read[run.start + i] = true;
              }
            }
            const std::uint64_t first = reader.first_position(window);
            const std::uint64_t count = reader.first_position(window + 1) - first;
            ASSERT_EQ(part.size(), count);
            ASSERT_LE(count, reader.most_rows());
            ASSERT_LE(runs.size(), reader.most_runs());
            std::vector<std::uint64_t> places(count);
            reader.fill_places(first, places);
            for (std::uint64_t i = 0; i < count; ++i) {
              ASSERT_EQ(part.at(places[i]), wanted[first + i]);
              ASSERT_EQ(reader.window_of(first + i), window);
            }
          }
        }
        ASSERT_EQ(std::ranges::count(read, true), rows);
      }
    }
  }
}

TEST(BlockOrder, AWindowIsReadInWholeBlocks) {
  const BlockOrder order(block_shuffled(1, 0, {100, 20, 4}), 100'000);
  std::vector<RowRun> runs;
  std::uint64_t cut = 0;
  for (std::uint64_t window = 0; window < order.windows(); ++window) {
    order.runs(window, runs);
    for (const RowRun& run : runs) cut += run.count != 100;
  }
  EXPECT_LE(cut, 2u);  // the block around the end of the file
}

TEST(BlockOrder, TheLastWindowIsNotMuchSmallerThanTheOthers) {
  const BlockOrder order(block_shuffled(1, 0, {10, 100, 4}), 10'170);  // not 1,000 ... and 170
  EXPECT_EQ(order.windows(), 11u);
  EXPECT_EQ(order.first_position(1), 930u);
  EXPECT_EQ(order.first_position(11) - order.first_position(10), 870u);
}

TEST(BlockOrder, BlocksBeginElsewhereInEveryEpoch) {
  std::set<std::uint64_t> phases;
  std::vector<RowRun> runs;
  for (std::uint64_t epoch = 0; epoch < 50; ++epoch) {
    BlockOrder(block_shuffled(1, epoch, {1000, 10, 1}), 1'000'000).runs(0, runs);
    phases.insert(runs.front().start % 1000);
  }
  EXPECT_GT(phases.size(), 40u);
}

// Over many seeds, each row comes at each position equally often, also across ends of windows.
TEST(BlockOrder, EachRowComesAtEachPositionEquallyOften) {
  for (const std::uint64_t position : {0, 1, 9, 12, 22}) {
    std::vector<std::uint64_t> counts(23);
    for (std::uint64_t seed = 0; seed < (kSanitized ? 2000 : 10000); ++seed) {
      ++counts[Sequence(block_shuffled(seed / 100, seed % 100, {3, 3, 2}), 23)[position]];
    }
    EXPECT_LT(std::abs(chi_square_z(counts)), kMaxDeviation) << "position " << position;
  }
}

TEST(BlockOrder, SectionsOfAWindowAreShuffledEachInItsOwnWay) {
  const BlockOrder order(block_shuffled(1, 0, {64, 8, 2}), 2048);
  std::set<std::vector<std::uint64_t>> seen;
  for (std::uint64_t window = 0; window < order.windows(); ++window) {
    std::vector<std::uint64_t> places(512);
    order.fill_places(window * 512, places);
    for (std::uint64_t section = 0; section < 2; ++section) {
      std::vector<std::uint64_t> within;
      for (std::uint64_t i = section; i < 512; i += 2) within.push_back(places[i] % 256);
      seen.insert(within);
    }
  }
  EXPECT_EQ(seen.size(), 8u);
}

std::string blocks_refusal(const Order& order, std::uint64_t rows) {
  try {
    Sequence(order, rows);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    EXPECT_NE(error.hint_text(), "");
    return error.what();
  }
  return "accepted";
}

TEST(BlockOrder, RefusesNumbersThatMakeNoSense) {
  EXPECT_THAT(blocks_refusal(block_shuffled(1, 0, {0, 1, 1}), 10), HasSubstr("a block of 0 rows"));
  EXPECT_THAT(blocks_refusal(block_shuffled(1, 0, {1, 0, 1}), 10), HasSubstr("0 blocks"));
  EXPECT_THAT(blocks_refusal(block_shuffled(1, 0, {1, 1, 0}), 10), HasSubstr("0 streams"));
  EXPECT_THAT(blocks_refusal(block_shuffled(1, 0, {1, 1, 64}).for_rank(0, 6), 10),
              HasSubstr("a world of 6 does not divide the 64 streams"));
  EXPECT_THAT(blocks_refusal(block_shuffled(1, 0, {1, 1, 64}), ~0ULL), HasSubstr("2^58"));
  EXPECT_EQ(blocks_refusal(block_shuffled(1, 0, {1, 1, 64}).for_rank(7, 8), 0), "accepted");
  EXPECT_EQ(blocks_refusal(block_shuffled(1, 0, {~0ULL, ~0ULL, 64}), ~0ULL), "accepted");
}

TEST(BlockOrder, BlocksAreChosenByTheBudgetAndTheWorld) {
  const std::uint64_t mib = 1 << 20;
  EXPECT_EQ(choose_blocks({.row_bytes = 648, .budget = 512 * mib}), (BlockOptions{202, 1025, 64}));
  // Four ranks with a quarter of the memory each mix the same number of rows.
  EXPECT_EQ(choose_blocks({.row_bytes = 648, .budget = 128 * mib, .world = 4}),
            (BlockOptions{202, 1025, 64}));
  EXPECT_EQ(choose_blocks({.row_bytes = 1024, .budget = 16384 * mib}),
            (BlockOptions{256, 16384, 64}));
  // Less memory: smaller blocks first, then fewer of them.
  EXPECT_EQ(choose_blocks({.row_bytes = 1024, .budget = 256 * mib}), (BlockOptions{128, 512, 64}));
  EXPECT_EQ(choose_blocks({.row_bytes = 1024, .budget = 64 * mib}), (BlockOptions{32, 512, 64}));
  EXPECT_EQ(choose_blocks({.row_bytes = 1024, .budget = 4 * mib}), (BlockOptions{32, 32, 64}));
  EXPECT_EQ(choose_blocks({.row_bytes = 1 << 30, .budget = mib}), (BlockOptions{1, 1, 64}));
  EXPECT_EQ(choose_blocks(
                {.row_bytes = 8, .budget = mib, .world = 6, .block_rows = 10, .window_rows = 95}),
            (BlockOptions{10, 10, 192}));
  EXPECT_EQ(choose_blocks({.budget = ~0ULL, .world = ~0ULL}).streams, ~0ULL);
  // A mixture: the sets share the budget, and a step has at least 8 turns if the world size allows
  // it.
  EXPECT_EQ(choose_blocks({.row_bytes = 1024, .budget = 512 * mib, .sets = 4, .step_rows = 100}),
            (BlockOptions{64, 512, 8}));
  const auto streams = [](std::uint64_t world, std::uint64_t step_rows) {
    return choose_blocks({.world = world, .sets = 2, .step_rows = step_rows}).streams;
  };
  EXPECT_EQ(streams(1, 7), 1u);
  EXPECT_EQ(streams(6, 96), 12u);
  EXPECT_EQ(streams(8, 24), 8u);
  EXPECT_EQ(streams(8, 1 << 20), 64u);
  EXPECT_EQ(streams(100, 1 << 20), 100u);
}

TEST(BlockOrder, DescribesItself) {
  EXPECT_EQ(block_shuffled(7, 2, {404, 512, 64}).for_rank(1, 8).describe(),
            "blocks of 404 rows, windows of 512 blocks, 64 streams, seed 7, epoch 2, rank 1 of 8");
}

TEST(Sequence, FindIsTheInverseOfOtherOrders) {
  for (const Order& order : {sequential(), shuffled(3, 1), shuffled(3).for_rank(1, 3)}) {
    const Sequence sequence(order, 500);
    for (std::uint64_t p = 0; p < sequence.size(); ++p) {
      ASSERT_EQ(sequence.find(sequence[p]), p);
    }
  }
  EXPECT_EQ(Sequence(sequential().for_rank(1, 2), 10).find(4), std::nullopt);
  EXPECT_THROW(Sequence(shuffled(1), 10).find(10), Error);
  EXPECT_THROW(Sequence(random(1), 10).find(1), Error);
}

}  // namespace
}  // namespace evenkeel
