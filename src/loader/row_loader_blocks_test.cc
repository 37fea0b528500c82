// labels: threads reads
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "loader/row_loader.h"
#include "loader/test_row_loader.h"
#include "tests/watchdog.h"

namespace evenkeel {
namespace {

class RowLoaderBlocks : public RowLoaderTest {};

TEST_F(RowLoaderBlocks, BlocksComeInTheirOrderFromWindowsAndFromMappings) {
  for (const EngineKind engine : {EngineKind::kDirect, EngineKind::kRead, EngineKind::kMap}) {
    const Array x = features(1003, engine), y = labels(1003, EngineKind::kDirect);
    for (const std::uint32_t prefetch : {0, 4}) {
      Loader loader({x, y}, {.batch_size = 50,
                             .order = OrderKind::kBlocks,
                             .seed = 3,
                             .blocks = kSmallBlocks,
                             .prefetch = prefetch,
                             .epochs = 2});
      EXPECT_EQ(loader.blocks(), kSmallBlocks);
      EXPECT_EQ(loader.size(), 42u);
      for (std::uint64_t loop = 0; loop < 2; ++loop) {
        std::uint64_t epoch = 2 * loop, at = 0;
        for (const RowBatch& batch : loader) {
          const Sequence expected(block_shuffled(3, epoch, kSmallBlocks), 1003);
          for (std::size_t i = 0; i < batch.rows(); ++i, ++at) {
            const auto row = static_cast<std::int32_t>(expected[at]);
            ASSERT_EQ(batch.as<std::int32_t>(0)[i][4], row * 1000 + 4);
            ASSERT_EQ(batch.as<std::int64_t>(1)[i][0], row * 7);
          }
          if (at == 1003) {
            at = 0;
            ++epoch;
          }
        }
        EXPECT_EQ(epoch, 2 * loop + 2);
      }
    }
  }
}

TEST_F(RowLoaderBlocks, BlocksSeekBackAndForth) {
  const Array x = features(1003), y = labels(1003);
  Loader loader({x, y}, {.batch_size = 50,
                         .order = OrderKind::kBlocks,
                         .seed = 3,
                         .blocks = kSmallBlocks,
                         .epochs = 5});
  for (const std::uint64_t step : {0, 7, 100, 20, 21, 22, 3, 41, 104}) {
    loader.seek(step);
    expect_as_explained(loader, step % 21 == 20 ? 3 : 50);
    if (step < 104) expect_as_explained(loader, (step + 1) % 21 == 20 ? 3 : 50);
  }
}

// Each row is on one rank only. The rows of a step are the same for every world that divides the
// streams, also if rows of the last window are left out.
TEST_F(RowLoaderBlocks, RanksDivideBlocks) {
  const Array x = features(1003), y = labels(1003);
  for (const bool drop_last : {false, true}) {
    std::map<std::uint64_t, std::set<std::uint64_t>> alone;
    for (const std::uint64_t world : {1, 2, 3, 4, 6, 12}) {
      std::map<std::uint64_t, std::set<std::uint64_t>> steps;
      for (std::uint64_t rank = 0; rank < world; ++rank) {
        Loader loader({x, y}, {.batch_size = 24 / world,
                               .order = OrderKind::kBlocks,
                               .seed = 3,
                               .blocks = kSmallBlocks,
                               .rank = rank,
                               .world = world,
                               .epochs = 3,
                               .drop_last = drop_last});
        EXPECT_EQ(loader.size(), drop_last ? 123u : 126u);
        for (const RowBatch& batch : loader) {
          for (std::size_t i = 0; i < batch.rows(); ++i) {
            const std::int32_t row = batch.as<std::int32_t>(0)[i][0] / 1000;
            ASSERT_EQ(batch.as<std::int64_t>(1)[i][0], row * 7);
            ASSERT_TRUE(steps[batch.step()].insert(static_cast<std::uint64_t>(row)).second);
          }
        }
      }
      if (world == 1) alone = steps;
      EXPECT_EQ(steps, alone) << world;
    }
    std::map<std::uint64_t, std::set<std::uint64_t>> epochs;
    for (const auto& [step, rows] : alone) {
      epochs[step / (drop_last ? 41 : 42)].insert(rows.begin(), rows.end());
    }
    for (const auto& [epoch, rows] : epochs) EXPECT_EQ(rows.size(), drop_last ? 984u : 1003u);
  }
}

TEST_F(RowLoaderBlocks, ARankMayHaveNoRowsInAWindow) {
  const Array x = features(65), y = labels(65);
  Watchdog watchdog;
  for (const std::uint64_t rank : {0, 40, 63}) {
    watchdog.enter("windows without rows");
    Loader loader({x, y}, {.batch_size = 1,
                           .order = OrderKind::kBlocks,
                           .blocks = {1, 64, 64},
                           .rank = rank,
                           .world = 64,
                           .epochs = 6});
    for (std::uint64_t i = 0; i < loader.size(); ++i) {
      expect_as_explained(loader, loader.explain(loader.step()).size());
    }
  }
}

TEST_F(RowLoaderBlocks, AStateSaysWhichBlocks) {
  const Array x = features(1003), y = labels(1003);
  Loader saved(
      {x, y}, {.batch_size = 20, .order = OrderKind::kBlocks, .blocks = kSmallBlocks, .epochs = 2});
  for (int i = 0; i < 60; ++i) saved.next();
  const RowLoaderState state = RowLoaderState::parse(saved.state().text());
  EXPECT_EQ(state, saved.state());
  std::vector<std::uint64_t> expected;
  for (const RowOrigin& origin : saved.explain(60)) expected.push_back(origin.row);
  // The blocks are chosen from the budget first, and then taken from the state.
  Loader other({x, y}, {.batch_size = 20, .order = OrderKind::kBlocks, .epochs = 2});
  EXPECT_NE(other.blocks(), kSmallBlocks);
  other.next();
  other.load(state);
  EXPECT_EQ(other.blocks(), kSmallBlocks);
  EXPECT_EQ(other.step(), 60u);
  std::vector<std::uint64_t> found;
  for (const RowOrigin& origin : other.explain(60)) found.push_back(origin.row);
  EXPECT_EQ(found, expected);
  expect_as_explained(other, 20);
  // Windows that do not fit, or that this world cannot divide, are refused. The loader continues.
  RowLoaderState huge = state;
  huge.blocks = {1000, 1'000'000'000, 64};
  RowLoaderState odd = state;
  odd.blocks.streams = 0;
  expect_in(complaint([&] { other.load(odd); }), "0 streams");
  RowLoaderState small = state;
  small.blocks.window_blocks = 2;
  expect_in(complaint([&] { other.load(small); }), "smaller than a step of 20 rows");
  EXPECT_EQ(other.blocks(), kSmallBlocks);
  EXPECT_EQ(other.step(), 61u);
  expect_as_explained(other, 20);
}

TEST_F(RowLoaderBlocks, WrongBlocksAreRefused) {
  const Array x = features(100'000), y = labels(100'000);
  const auto wrong = [&](RowLoaderOptions options) {
    options.order = OrderKind::kBlocks;
    return complaint([&] { const Loader loader({x, y}, options); });
  };
  expect_in(wrong({.batch_size = 129, .blocks = kSmallBlocks}),
            "a window of 16 blocks of 8 rows is smaller than a step of 129 rows");
  expect_in(wrong({.batch_size = 4, .blocks = kSmallBlocks, .rank = 0, .world = 5}),
            "a world of 5 does not divide the 12 streams");
  // Mapped rows have no windows, but the same order.
  const Array mapped = features(1003, EngineKind::kMap, "mapped.bin");
  const RowLoaderOptions many_ranks{
      .batch_size = 4, .order = OrderKind::kBlocks, .blocks = kSmallBlocks, .rank = 0, .world = 24};
  for (const std::size_t sets : {1, 2}) {
    expect_in(complaint([&] {
                const Loader loader(std::vector<WeightedRows>(sets, {{mapped}, 1}), many_ranks);
              }),
              "a world of 24 does not divide the 12 streams");
  }
  budget_ = Budget(2_MiB);
  const Array tight = features(100'000);
  expect_in(complaint([&] {
              const Loader loader(
                  tight, {.batch_size = 4, .order = OrderKind::kBlocks, .blocks = {100, 900, 64}});
            }),
            "do not fit");
  expect_in(complaint([&] {
              const Loader loader(
                  {{{x}, 1}, {{features(11, EngineKind::kDirect, "few.bin")}, 1}},
                  {.batch_size = 4, .order = OrderKind::kBlocks, .blocks = kSmallBlocks});
            }),
            "takes 12 samples of a set at a time, one for each stream; a set has 11");
}

// The samples of 2^58 steps of 64 rows are 2^64.
TEST_F(RowLoaderBlocks, ALoopMayHaveMoreStepsThanCanBeCounted) {
  Watchdog watchdog;
  const Array x = features(1024), y = labels(1024);
  Loader loader({x, y}, {.batch_size = 64,
                         .order = OrderKind::kBlocks,
                         .blocks = kSmallBlocks,
                         .steps = std::uint64_t{1} << 58});
  for (int i = 0; i < 20; ++i) expect_as_explained(loader, 64);
}

// Workers take the steps of one loader in turn, even across epochs and short steps.
TEST_F(RowLoaderBlocks, WorkersTakeTurnsAtTheSteps) {
  const Array x = features(1001), y = labels(1001);
  for (const std::uint64_t workers : {2, 3, 7}) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (std::uint64_t i = 0; i < workers; ++i) {
      RowLoaderOptions options{.batch_size = 20, .order = OrderKind::kBlocks, .seed = 3};
      options.blocks = kSmallBlocks;
      options.rank = 1;
      options.world = 2;
      options.epochs = 3;
      options.workers = {workers, i};
      loaders.push_back(std::make_unique<Loader>(std::vector<LoaderField>{x, y}, options));
    }
    for (std::uint64_t step = 0; step < loaders[0]->epoch_rows() * 3 / 40; ++step) {
      Loader& mine = *loaders[step % workers];
      ASSERT_EQ(mine.step(), step);
      expect_as_explained(mine, mine.explain(step).size());
    }
    for (const std::uint64_t step : {50, 3, 70}) {
      Loader& mine = *loaders[step % workers];
      mine.seek(step);
      for (std::uint64_t i = 0; i < 3; ++i) {
        ASSERT_EQ(mine.step(), step + i * workers);
        if (mine.step() < 78) expect_as_explained(mine, mine.explain(mine.step()).size());
      }
    }
  }
}

class RowLoaderBlockMixture : public RowLoaderTest {
 protected:
  static constexpr std::int32_t kBase = 100'000'000;

  Loader make(RowLoaderOptions options, EngineKind engine = EngineKind::kDirect) {
    options.order = OrderKind::kBlocks;
    if (options.blocks == BlockOptions{0, 0, 0}) options.blocks = kSmallBlocks;
    options.seed = 5;
    return Loader(
        {{{features(700, engine, "a.bin")}, 3}, {{features(205, engine, "b.bin", kBase)}, 1}},
        options);
  }
  // Expects that the next batch has the rows that explain() returns.
  static std::vector<RowOrigin> take(Loader& loader) {
    const auto origins = loader.explain(loader.step());
    const RowBatch& batch = *loader.next();
    const auto x = batch.as<std::int32_t>(0);
    EXPECT_EQ(x.size(), origins.size());
    for (std::size_t i = 0; i < origins.size(); ++i) {
      const std::int32_t base = origins[i].set == 1 ? kBase : 0;
      EXPECT_EQ(x[i][0], base + static_cast<std::int32_t>(origins[i].row) * 1000);
      EXPECT_EQ(x[i][4], base + static_cast<std::int32_t>(origins[i].row) * 1000 + 4);
    }
    return origins;
  }
};

TEST_F(RowLoaderBlockMixture, SetsComeInTheirSharesAndEachRowOnceAnEpoch) {
  for (const EngineKind engine : {EngineKind::kDirect, EngineKind::kRead, EngineKind::kMap}) {
    Loader loader = make({.batch_size = 48}, engine);
    std::map<std::pair<std::size_t, std::uint64_t>, std::set<std::uint64_t>> seen;
    std::uint64_t first_set = 0, samples = 0;
    for (int step = 0; step < 70; ++step) {
      for (const RowOrigin& origin : take(loader)) {
        ASSERT_EQ(origin.sample, samples++);
        ASSERT_TRUE(seen[std::pair(origin.set, origin.epoch)].insert(origin.row).second);
        first_set += origin.set == 0;
        // Shares are exact to within a turn of 12 samples, at every prefix.
        ASSERT_LE(first_set * 4, samples * 3 + 4 * 12);
        ASSERT_GE(first_set * 4 + 4 * 12, samples * 3);
      }
    }
    // A complete epoch leaves out less than a turn.
    EXPECT_EQ(seen.at(std::pair(std::size_t{0}, std::uint64_t{0})).size(), 696u);
    EXPECT_EQ(seen.at(std::pair(std::size_t{1}, std::uint64_t{2})).size(), 204u);
  }
}

TEST_F(RowLoaderBlockMixture, AStepHasTheSameRowsForEveryWorldAndNumberOfWorkers) {
  Loader alone = make({.batch_size = 24});
  std::vector<std::vector<std::uint64_t>> steps(40);
  for (auto& step : steps) {
    for (const RowOrigin& origin : take(alone)) step.push_back(origin.set * 1000 + origin.row);
  }
  for (const std::uint64_t world : {2, 3, 4}) {
    for (const std::uint64_t workers : {1, 3}) {
      std::vector<std::vector<std::uint64_t>> together(steps.size(),
                                                       std::vector<std::uint64_t>(24));
      for (std::uint64_t rank = 0; rank < world; ++rank) {
        for (std::uint64_t worker = 0; worker < workers; ++worker) {
          Loader part = make({.batch_size = 24 / world,
                              .rank = rank,
                              .world = world,
                              .workers = {workers, worker}});
          while (part.step() < steps.size()) {
            const std::uint64_t step = part.step();
            for (const RowOrigin& origin : take(part)) {
              together[step][origin.sample % 24] = origin.set * 1000 + origin.row;
            }
          }
        }
      }
      EXPECT_EQ(together, steps) << world << " ranks, " << workers << " workers";
    }
  }
}

TEST_F(RowLoaderBlockMixture, SeeksAndResumesOnAnotherWorldWithTheBlocksOfTheState) {
  Loader loader = make({.batch_size = 24});
  for (const std::uint64_t step : {31, 4, 5, 100, 3}) {
    loader.seek(step);
    for (int i = 0; i < 6; ++i) take(loader);
  }
  const RowLoaderState state = RowLoaderState::parse(loader.state().text());
  EXPECT_EQ(state.blocks, kSmallBlocks);
  const auto expected = loader.explain(loader.step());
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    Loader part = make({.batch_size = 6, .blocks = {16, 32, 24}, .rank = rank, .world = 4});
    take(part);
    part.load(state);
    const auto mine = take(part);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i].row, expected[i * 4 + rank].row);
      EXPECT_EQ(mine[i].set, expected[i * 4 + rank].set);
    }
    for (int i = 0; i < 30; ++i) take(part);
  }
}

TEST_F(RowLoaderBlocks, BlocksStayWithinTheBudget) {
  budget_ = Budget(4_MiB);
  const Array x = features(400'000, EngineKind::kAuto), y = labels(400'000, EngineKind::kAuto);
  Loader loader({x, y}, {.batch_size = 1000, .order = OrderKind::kBlocks});
  std::set<std::int32_t> seen;
  for (const RowBatch& batch : loader) {
    for (std::size_t i = 0; i < batch.rows(); ++i) seen.insert(batch.as<std::int32_t>()[i][0]);
  }
  EXPECT_EQ(seen.size(), 400'000u);
  EXPECT_LE(budget_.peak(), 4_MiB);
}

}  // namespace
}  // namespace evenkeel
