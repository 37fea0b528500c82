// labels: threads reads
#include "tokens/loader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "tokens/test_loader.h"

namespace evenkeel {
namespace {

class TokenLoaderBatches : public TokenLoaderTest {};

TEST_F(TokenLoaderBatches, BatchesAreWhatExplainSays) {
  const Tokens stream = shards({3000, 5000, 17, 4000});
  for (const CropOrder order : {CropOrder::kRandom, CropOrder::kShuffled, CropOrder::kCovering}) {
    for (const std::uint32_t prefetch : {0, 1, 5}) {
      TokenLoader loader(
          stream,
          {.batch_size = 6, .block_size = 50, .order = order, .seed = 3, .prefetch = prefetch});
      for (int i = 0; i < 60; ++i) expect_as_explained(loader);
    }
  }
}

TEST_F(TokenLoaderBatches, ShuffledRanksTogetherShowEachBlockOnceAnEpoch) {
  const Tokens stream = tokens(64 * 40 + 1);
  std::map<std::uint64_t, int> seen;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    TokenLoader loader(stream, {.batch_size = 2,
                                .block_size = 64,
                                .order = CropOrder::kShuffled,
                                .seed = 9,
                                .rank = rank,
                                .world = 4,
                                .steps = 5});
    for (const Batch& batch : loader) {
      for (const auto& origin : loader.explain(batch.step())) ++seen[origin.start];
    }
  }
  EXPECT_EQ(seen.size(), 40u);
  EXPECT_TRUE(std::ranges::all_of(seen, [](const auto& entry) { return entry.second == 1; }));
}

RC_GTEST_FIXTURE_PROP(TokenLoaderBatches, AStepIsTheSameSamplesForEveryWorld, ()) {
  const Tokens stream = tokens(5000);
  const auto order =
      *rc::gen::element(CropOrder::kRandom, CropOrder::kShuffled, CropOrder::kCovering);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto step = *rc::gen::inRange<std::uint64_t>(0, 10'000);
  const auto samples_of = [&](std::uint64_t world) {
    std::vector<std::uint64_t> starts(12);
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      const TokenLoader loader(stream, {.batch_size = 12 / world,
                                        .block_size = 32,
                                        .order = order,
                                        .seed = seed,
                                        .rank = rank,
                                        .world = world,
                                        .prefetch = 0});
      for (const auto& origin : loader.explain(step)) starts[origin.sample % 12] = origin.start;
    }
    return starts;
  };
  const auto alone = samples_of(1);
  for (const std::uint64_t world : {2, 3, 4, 6, 12}) RC_ASSERT(samples_of(world) == alone);
}

TEST_F(TokenLoaderBatches, ValidationGivesTheSameFixedBatchesEachTime) {
  TokenLoader loader(tokens(30'000), {.batch_size = 4, .block_size = 32, .seed = 2, .steps = 9});
  std::vector<std::vector<std::int64_t>> first, second;
  for (const Batch& batch : loader) first.push_back(values(batch.y<std::int64_t>()));
  for (const Batch& batch : loader) {
    second.push_back(values(batch.y<std::int64_t>()));
    if (second.size() == 4) break;
  }
  second.clear();
  for (const Batch& batch : loader) second.push_back(values(batch.y<std::int64_t>()));
  EXPECT_EQ(first.size(), 9u);
  EXPECT_EQ(first, second);
}

TEST_F(TokenLoaderBatches, MixturesKeepToTheirSharesAndReadTheRightSet) {
  const Tokens a = Tokens::open(folder_.write("a.bin", counting(0, 10'000)), {.budget = 16_MiB});
  const Tokens b =
      Tokens::open(folder_.write("b.bin", counting(20'000, 7'000)), {.budget = 16_MiB});
  const LoaderOptions options{.batch_size = 5,
                              .block_size = 16,
                              .order = CropOrder::kShuffled,
                              .seed = 4,
                              .rank = 1,
                              .world = 2};
  TokenLoader loader({{a, 3}, {b, 1}}, options);
  std::map<std::size_t, int> taken;
  for (int step = 0; step < 200; ++step) {
    const auto origins = loader.explain(loader.step());
    const auto x = loader.next()->x<std::int64_t>();
    for (std::size_t i = 0; i < origins.size(); ++i) {
      ++taken[origins[i].set];
      ASSERT_EQ(x[i][0], static_cast<std::int64_t>(origins[i].start + origins[i].set * 20'000));
      EXPECT_TRUE(origins[i].path.ends_with(origins[i].set == 0 ? "a.bin" : "b.bin"));
    }
  }
  // This is the part of one rank. All ranks together are exact to within one.
  EXPECT_NEAR(taken[1], 250, 20);
  const auto expected = values(loader.next()->x<std::int64_t>());
  TokenLoader again({{a, 3}, {b, 1}}, options);
  again.seek(200);
  EXPECT_EQ(values(again.next()->x<std::int64_t>()), expected);
  TokenLoader other({{a, 2}, {b, 1}}, options);
  EXPECT_THROW(other.load(loader.state()), Error);
}

TEST_F(TokenLoaderBatches, CallersMemoryIsUsedAndKeptAsLongAsPromised) {
  const Tokens stream = tokens(20'000);
  constexpr std::size_t kBytes = 4 * 16 * 8;
  std::vector<std::vector<std::byte>> memory(5, std::vector<std::byte>(2 * kBytes));
  LoaderOptions options{.batch_size = 4, .block_size = 16, .seed = 5, .buffers = {.keep = 2}};
  for (auto& one : memory) {
    options.buffers.memory.push_back({std::span(one).first(kBytes), std::span(one).last(kBytes)});
  }
  TokenLoader loader(stream, options);
  TokenLoader plain(stream, {.batch_size = 4, .block_size = 16, .seed = 5});
  std::vector<Rows<std::int64_t>> kept;
  std::vector<std::vector<std::int64_t>> expected;
  for (int i = 0; i < 40; ++i) {
    const Rows<std::int64_t> x = loader.next()->x<std::int64_t>();
    EXPECT_TRUE(std::ranges::any_of(memory, [&](const auto& one) {
      return one.data() == reinterpret_cast<const std::byte*>(x.data());
    }));
    kept.push_back(x);
    expected.push_back(values(plain.next()->x<std::int64_t>()));
    for (std::size_t back = 0; back <= 2 && back < kept.size(); ++back) {
      EXPECT_EQ(values(kept[kept.size() - 1 - back]), expected[kept.size() - 1 - back]);
    }
  }
  options.buffers.memory.resize(2);
  EXPECT_THROW(TokenLoader(stream, options), Error);
}

TEST_F(TokenLoaderBatches, EpochsEndAndTheNextLoopGoesOn) {
  const Tokens stream = tokens(16 * 10 + 1);  // 10 blocks
  const LoaderOptions options{
      .batch_size = 3, .block_size = 16, .order = CropOrder::kShuffled, .seed = 1, .epochs = 2};
  TokenLoader loader(stream, options);
  EXPECT_EQ(loader.size(), 6u);  // 20 samples, 3 in each step
  for (std::uint64_t loop = 0; loop < 3; ++loop) {
    std::uint64_t batches = 0;
    for (const Batch& batch : loader) EXPECT_EQ(batch.step(), loop * 6 + batches++);
    EXPECT_EQ(batches, 6u);
    EXPECT_EQ(loader.next(), nullptr);
  }
  loader.seek(8);  // in the middle of the second loop
  EXPECT_EQ(std::ranges::distance(loader.begin(), loader.end()), 4);

  LoaderOptions wrong = options;
  wrong.steps = 1;
  EXPECT_THROW(TokenLoader(stream, wrong), Error);
  wrong = options;
  wrong.order = CropOrder::kRandom;
  EXPECT_THROW(TokenLoader(stream, wrong), Error);
  wrong = options;
  wrong.batch_size = 21;
  EXPECT_THROW(TokenLoader(stream, wrong), Error);
}

TEST_F(TokenLoaderBatches, AStepThatCannotBeCountedIsRefused) {
  const Tokens stream = tokens(20'000);
  TokenLoader loader(stream, {.batch_size = 16, .block_size = 16});
  loader.seek(5);
  for (const std::uint64_t step : {UINT64_MAX, UINT64_MAX / 16, std::uint64_t{1} << 60}) {
    EXPECT_THROW(loader.seek(step), Error);
    EXPECT_THROW(loader.explain(step), Error);
  }
  EXPECT_EQ(loader.step(), 5u);  // a call that fails changes nothing
  const std::uint64_t far = (std::uint64_t{1} << 59) - 3;
  loader.seek(far);
  EXPECT_EQ(loader.next()->step(), far);
  EXPECT_EQ(loader.state().samples, (far + 1) * 16);
}

TEST_F(TokenLoaderBatches, MessagesSayWhatWasWrongFirst) {
  const Tokens stream = tokens(20'000);
  const auto message = [&](auto&& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string rank = message([&] { TokenLoader(stream, {.rank = 2, .world = 2}); });
  EXPECT_NE(rank.find("rank must be 0 or 1 for world=2; got 2"), std::string::npos) << rank;
  const std::string load = message([&] {
    TokenLoader loader(stream, {.batch_size = 3, .block_size = 16});
    LoaderState state = loader.state();
    state.samples = 20;
    loader.load(state);
  });
  EXPECT_NE(load.find("the checkpoint has 20 samples, which is not divisible by world x batch_size "
                      "= 3"),
            std::string::npos)
      << load;
}

TEST_F(TokenLoaderBatches, OtherOutputTypes) {
  const Tokens stream = tokens(20'000);
  TokenLoader wide(stream, {.batch_size = 3, .block_size = 33});
  TokenLoader narrow(stream,
                     {.batch_size = 3, .block_size = 33, .dtype = DType::of<std::int32_t>()});
  TokenLoader stored(stream, {.batch_size = 3, .block_size = 33, .dtype = std::nullopt});
  for (int i = 0; i < 5; ++i) {
    const auto a = wide.next()->y<std::int64_t>();
    const auto b = narrow.next()->y<std::int32_t>();
    const auto c = stored.next()->y<std::uint16_t>();
    EXPECT_TRUE(std::ranges::equal(a.flat(), b.flat()));
    EXPECT_TRUE(std::ranges::equal(a.flat(), c.flat()));
  }
  EXPECT_THROW(wide.next()->x<std::int32_t>(), Error);
}

TEST_F(TokenLoaderBatches, WorkersThatTakeTurnsTogetherGiveAllStepsInOrder) {
  const std::vector<WeightedTokens> sets = {{tokens(50'000), 3}, {shards({30'000}), 1}};
  const LoaderOptions options{
      .batch_size = 4, .block_size = 64, .rank = 1, .world = 2, .steps = 11};
  TokenLoader alone(sets, options);
  std::vector<TokenLoader> workers;
  for (std::uint64_t phase = 0; phase < 2; ++phase) {
    LoaderOptions of_worker = options;
    of_worker.workers.stride = 2;
    of_worker.workers.phase = phase;
    workers.emplace_back(sets, of_worker);
  }
  for (const std::uint64_t from : {0, 3, 11}) {
    alone.seek(from);
    for (TokenLoader& worker : workers) worker.seek(from);
    for (std::uint64_t step = from; step < 11; ++step) {
      const Batch *wanted = alone.next(), *given = workers[step % 2].next();
      ASSERT_NE(given, nullptr);
      EXPECT_EQ(given->step(), step);
      EXPECT_EQ(values(given->x<std::int64_t>()), values(wanted->x<std::int64_t>()));
    }
    for (TokenLoader& worker : workers) EXPECT_EQ(worker.next(), nullptr);
  }
  LoaderOptions wrong = options;
  wrong.workers.phase = 1;
  EXPECT_THROW(TokenLoader(sets, wrong), Error);
}

TEST_F(TokenLoaderBatches, RowsWithoutTokensAreRefusedInEveryMode) {
  const Tokens stream = tokens(1000);
  for (const auto mode :
       {DocumentMode::kNone, DocumentMode::kMask, DocumentMode::kStart, DocumentMode::kPacked}) {
    LoaderOptions options{.batch_size = 2, .block_size = 0, .order = CropOrder::kShuffled};
    options.documents.mode = mode;
    options.documents.bos = 5;
    EXPECT_THROW(TokenLoader(stream, options), Error);
  }
  LoaderOptions options{.batch_size = 2, .block_size = 16};
  options.documents.mode = DocumentMode::kPacked;
  options.documents.bos = 5;
  EXPECT_THROW(TokenLoader(stream.slice(10, 10), options), Error);
}

TEST_F(TokenLoaderBatches, BadOptionsAreRefused) {
  const Tokens stream = tokens(1000);
  const auto refused = [&](const LoaderOptions& options) {
    EXPECT_THROW(TokenLoader(stream, options), Error);
  };
  refused({.batch_size = 0});
  refused({.block_size = 0});
  refused({.block_size = 1000});
  refused({.block_size = 8, .rank = 2, .world = 2});
  refused({.block_size = 8, .world = 0});
  refused({.batch_size = std::uint64_t{1} << 62, .block_size = 8});
  refused({.batch_size = std::uint64_t{1} << 40, .block_size = 8, .world = std::uint64_t{1} << 30});
  EXPECT_THROW(TokenLoader(std::vector<WeightedTokens>{}, {}), Error);
}

}  // namespace
}  // namespace evenkeel
