// labels: threads reads
// TokenLoader in the order `blocks`.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "order/block_order.h"
#include "tests/watchdog.h"
#include "tokens/crop_order.h"
#include "tokens/loader.h"
#include "tokens/test_loader.h"

namespace evenkeel {
namespace {

constexpr BlockOptions kFewCrops = {8, 16, 12};

LoaderOptions in_blocks(std::uint64_t batch_size, BlockOptions blocks = kFewCrops) {
  return {.batch_size = batch_size,
          .block_size = 10,
          .order = CropOrder::kBlocks,
          .seed = 7,
          .blocks = blocks};
}

class TokenBlocks : public TokenLoaderTest {};

// The crops of an epoch are those of kCovering, in the order of `blocks` for as many rows.
TEST_F(TokenBlocks, CropsComeInTheirOrderFromWindowsAndFromMappings) {
  const std::uint64_t crops = (10'007 - 10) / 10;
  for (const EngineKind engine : {EngineKind::kDirect, EngineKind::kRead, EngineKind::kMap}) {
    const Tokens stream = tokens(10'007, engine);
    for (const std::uint32_t prefetch : {0, 4}) {
      LoaderOptions options = in_blocks(40);
      options.prefetch = prefetch;
      TokenLoader loader(stream, options);
      EXPECT_EQ(loader.epoch_samples(), crops);
      std::set<std::uint64_t> phases;
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        const Sequence sequence(block_shuffled(7, epoch, kFewCrops), crops);
        const std::uint64_t phase = crop_phase(7, 10, epoch);
        phases.insert(phase);
        for (std::uint64_t step = 0; step < crops / 40; ++step) {
          std::vector<std::uint64_t> rows(40);
          sequence.fill(step * 40, rows);
          const auto origins = loader.explain(loader.step());
          for (std::uint64_t i = 0; i < 40; ++i) {
            ASSERT_EQ(origins[i].epoch, epoch);
            ASSERT_EQ(origins[i].start, phase + 10 * rows[i]);
          }
          expect_as_explained(loader);
        }
      }
      EXPECT_EQ(phases.size(), 3u);
    }
  }
}

TEST_F(TokenBlocks, BlocksCrossShards) {
  TokenLoader loader(shards({1000, 1, 2'503, 10, 4'000}), in_blocks(32));
  for (int i = 0; i < 60; ++i) expect_as_explained(loader);
}

TEST_F(TokenBlocks, SeekBackAndForth) {
  TokenLoader loader(tokens(20'000), in_blocks(20));
  for (const std::uint64_t step : {55, 3, 4, 200, 99, 0}) {
    loader.seek(step);
    for (int i = 0; i < 12; ++i) expect_as_explained(loader);
  }
}

// This also applies to the workers of a rank.
TEST_F(TokenBlocks, AStepIsTheSameCropsForEveryWorldAndNumberOfWorkers) {
  const Tokens stream = tokens(9'000);
  TokenLoader alone(stream, in_blocks(24));
  std::vector<std::vector<std::uint64_t>> steps(50);
  for (auto& step : steps) {
    for (const CropOrigin& origin : alone.explain(alone.step())) step.push_back(origin.start);
    expect_as_explained(alone);
  }
  for (const std::uint64_t world : {1, 2, 3}) {
    for (const std::uint64_t workers : {1, 3}) {
      std::vector<std::vector<std::uint64_t>> together(steps.size(),
                                                       std::vector<std::uint64_t>(24));
      for (std::uint64_t rank = 0; rank < world; ++rank) {
        for (std::uint64_t worker = 0; worker < workers; ++worker) {
          LoaderOptions options = in_blocks(24 / world);
          options.rank = rank;
          options.world = world;
          options.workers = {workers, worker};
          TokenLoader part(stream, options);
          while (part.step() < steps.size()) {
            const std::uint64_t step = part.step(), epoch = step / (899 / 24);
            for (const CropOrigin& origin : part.explain(step)) {
              together[step][(origin.sample - epoch * 899) % 24] = origin.start;
            }
            expect_as_explained(part);
          }
        }
      }
      EXPECT_EQ(together, steps) << world << " ranks, " << workers << " workers";
    }
  }
}

TEST_F(TokenBlocks, EachRankReadsItsOwnShare) {
  std::uint64_t most = 0, all = 0;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    const Tokens stream = tokens(4'000'000);
    LoaderOptions options = in_blocks(100, {1000, 20, 64});
    options.rank = rank;
    options.world = 4;
    options.epochs = 1;
    TokenLoader loader(stream, options);
    while (loader.next()) {
    }
    most = std::max(most, loader.stats().bytes_from_disk);
    all += loader.stats().bytes_from_disk;
  }
  // A little more than a quarter: sections of a window are not whole blocks, and requests are
  // aligned.
  EXPECT_LE(most, 8'000'000 / 4 * 1.1);
  EXPECT_GE(all, 399'900 * 10 * 2);  // the crops of whole steps, each read by one rank
}

TEST_F(TokenBlocks, AStateSaysWhichBlocks) {
  const Tokens stream = tokens(20'000);
  TokenLoader loader(stream, in_blocks(24));
  for (int i = 0; i < 30; ++i) loader.next();
  const LoaderState state = LoaderState::parse(loader.state().text());
  EXPECT_EQ(state, loader.state());
  EXPECT_EQ(state.blocks, kFewCrops);
  const auto expected = loader.explain(30);
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    LoaderOptions options = in_blocks(8, {0, 0, 0});
    options.rank = rank;
    options.world = 3;
    TokenLoader other(stream, options);
    EXPECT_EQ(other.blocks().streams, 192u);
    other.load(state);
    EXPECT_EQ(other.blocks(), kFewCrops);
    const auto mine = other.explain(other.step());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i].start, expected[3 * i + rank].start);
    }
    for (int i = 0; i < 10; ++i) expect_as_explained(other);
  }
  // 5 ranks cannot resume from this state: the loader stays as it is.
  LoaderOptions options = in_blocks(24, {8, 16, 5});
  options.world = 5;
  TokenLoader five(stream, options);
  EXPECT_THROW(five.load(state), Error);
  EXPECT_EQ(five.blocks().streams, 5u);
  for (int i = 0; i < 10; ++i) expect_as_explained(five);
  EXPECT_THROW(TokenLoader(stream, {.order = CropOrder::kCovering}).load(state), Error);
}

TEST_F(TokenBlocks, AStateThatIsRefusedLeavesTheSecondLoopAsItIs) {
  Watchdog watchdog;
  const Tokens stream = tokens(4'000);
  const TokenLoader other(stream, in_blocks(24));
  LoaderOptions options = in_blocks(24, {8, 16, 5});
  options.world = 5;
  options.epochs = 1;
  TokenLoader::Impl loader({{stream, 1}}, options, false);
  while (loader.next()) {
  }
  loader.begin_loop(false);
  EXPECT_THROW(loader.load(other.state()), Error);  // 5 ranks cannot have 12 streams
  watchdog.enter("the second loop");
  for (std::uint64_t i = 0; i < loader.size(); ++i) {
    const auto origins = loader.explain(loader.step());
    const auto x = loader.next()->x<std::int64_t>();
    for (std::size_t row = 0; row < origins.size(); ++row) {
      ASSERT_EQ(x[row][0], static_cast<std::int64_t>(origins[row].start));
    }
  }
  EXPECT_EQ(loader.next(), nullptr);
}

TEST_F(TokenBlocks, AnEpochOfLessThanAStepIsRefused) {
  try {
    const TokenLoader loader(tokens(4'000), in_blocks(400, {8, 100, 12}));
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("an epoch has 399 samples"), std::string::npos) << text;
    EXPECT_EQ(text.find("drop_last"), std::string::npos) << text;  // not an option of TokenLoader
  }
}

TEST_F(TokenBlocks, AMixtureTakesSetsByTheirWeights) {
  const Tokens first = tokens(9'000);
  const Tokens second = Tokens::open(folder_.write("b.bin", counting(30'000, 3'333)),
                                     {.budget = 16_MiB, .engine = EngineKind::kDirect});
  TokenLoader loader({{first, 3}, {second, 1}}, in_blocks(48));
  std::map<std::pair<std::size_t, std::uint64_t>, std::set<std::uint64_t>> seen;
  for (int step = 0; step < 60; ++step) {
    const auto origins = loader.explain(loader.step());
    const Batch& batch = *loader.next();
    std::size_t of_second = 0;
    for (std::size_t i = 0; i < origins.size(); ++i) {
      const bool is_second = origins[i].set == 1;
      of_second += is_second;
      expect_crop(batch.x<std::int64_t>()[i], batch.y<std::int64_t>()[i],
                  origins[i].start + (is_second ? 30'000 : 0));
      ASSERT_TRUE(
          seen[std::pair(origins[i].set, origins[i].epoch)].insert(origins[i].start).second);
    }
    EXPECT_EQ(of_second, 12u);
  }
  EXPECT_EQ(seen.at(std::pair(std::size_t{0}, std::uint64_t{0})).size(), 888u);  // of 899
  EXPECT_EQ(seen.at(std::pair(std::size_t{1}, std::uint64_t{1})).size(), 324u);  // of 332
}

// The set with a limit of two epochs begins again, and the weights change in the middle of a turn.
TEST_F(TokenBlocks, AMixtureThatChangesAndRepeats) {
  const Tokens first = tokens(9'000);
  const Tokens second = Tokens::open(folder_.write("b.bin", counting(30'000, 3'333)),
                                     {.budget = 16_MiB, .engine = EngineKind::kDirect});
  LoaderOptions options = in_blocks(20);  // turns of 12
  options.mixture = {
      .stages = {{0, {1, 1}}, {30, {1, 4}}}, .max_epochs = {0, 2}, .exhausted = Exhausted::kRepeat};
  TokenLoader loader({{first, 1}, {second, 1}}, options);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> of_second;  // epoch and first token
  for (int step = 0; step < 90; ++step) {
    const auto origins = loader.explain(loader.step());
    const Batch& batch = *loader.next();
    for (std::size_t i = 0; i < origins.size(); ++i) {
      const CropOrigin& origin = origins[i];
      expect_crop(batch.x<std::int64_t>()[i], batch.y<std::int64_t>()[i],
                  origin.start + (origin.set == 1 ? 30'000 : 0));
      EXPECT_EQ(origin.stage, origin.sample < 600 ? 0u : 1u);
      if (origin.set == 1) of_second.emplace_back(origin.epoch, origin.start);
    }
  }
  constexpr std::size_t kRepeated = 2 * 324;
  ASSERT_GT(of_second.size(), kRepeated + 324);
  for (std::size_t i = 0; i < of_second.size(); ++i) {
    EXPECT_EQ(of_second[i].first, i / 324 % 2);
    EXPECT_EQ(of_second[i], of_second[i < kRepeated ? i : i - kRepeated]);
  }
  // A state from the repetition goes on.
  loader.seek(80);
  const LoaderState state = loader.state();
  TokenLoader other({{first, 1}, {second, 1}}, options);
  other.load(LoaderState::parse(state.text()));
  const auto origins = other.explain(80);
  const auto x = other.next()->x<std::int64_t>();
  for (std::size_t i = 0; i < origins.size(); ++i) {
    const std::uint64_t token = origins[i].start + (origins[i].set == 1 ? 30'000 : 0);
    EXPECT_EQ(x[i][0], static_cast<std::int64_t>(token));
  }
  options.blocks.streams = 6;
  TokenLoader fewer({{first, 1}, {second, 1}}, options);
  EXPECT_THROW(fewer.load(state), Error);
  // Without the limit, the loader ends with the set.
  options.mixture.exhausted = Exhausted::kStop;
  EXPECT_GT(TokenLoader({{first, 1}, {second, 1}}, options).size(), 30u);
}

TEST_F(TokenBlocks, StayWithinTheBudgetAndSayWhatDoesNotFit) {
  const std::string path = folder_.write("many.bin", counting(0, 6'000'000));
  const auto open = [&] {
    return Tokens::open(path, {.budget = 4_MiB, .engine = EngineKind::kDirect});
  };
  const Tokens stream = open();
  TokenLoader loader(stream, {.batch_size = 64, .block_size = 100, .order = CropOrder::kBlocks});
  for (int i = 0; i < 100; ++i) expect_as_explained(loader);
  EXPECT_LE(stream.budget().peak(), 4_MiB);
  EXPECT_GE(loader.blocks().window_rows() * 200, 1_MiB / 2);
  const auto complaint = [&](const LoaderOptions& options) -> std::string {
    try {
      const TokenLoader wrong(open(), options);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  LoaderOptions options = in_blocks(64, {1000, 200, 64});
  EXPECT_NE(complaint(options).find("do not fit"), std::string::npos) << complaint(options);
  options = in_blocks(64, {8, 4, 64});
  EXPECT_NE(complaint(options).find("smaller than a step of 64 rows"), std::string::npos)
      << complaint(options);
}

}  // namespace
}  // namespace evenkeel
