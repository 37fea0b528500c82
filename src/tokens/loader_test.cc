// labels: threads reads
#include "tokens/loader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "evenkeel/tokens.h"
#include "tests/forked.h"
#include "tests/sanitizers.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

// Token i has the value i mod 65,536, so that any wrong token shows itself.
std::string counting(std::uint64_t first, std::uint64_t count) {
  std::string bytes(count * 2, '\0');
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto token = static_cast<std::uint16_t>(first + i);
    std::memcpy(bytes.data() + 2 * i, &token, 2);
  }
  return bytes;
}

std::vector<std::int64_t> values(const Rows<std::int64_t>& rows) {
  const auto flat = rows.flat();
  return {flat.begin(), flat.end()};
}

class Loader : public testing::Test {
 protected:
  Tokens tokens(std::uint64_t count, EngineKind engine = EngineKind::kDirect) {
    return Tokens::open(folder_.write("tokens.bin", counting(0, count)),
                        {.budget = 16_MiB, .engine = engine});
  }
  // Tokens 0, 1, 2, ... over several files of uneven length.
  Tokens shards(const std::vector<std::uint64_t>& counts) {
    std::uint64_t first = 0;
    std::vector<std::string> paths;
    for (const auto count : counts) {
      paths.push_back(
          folder_.write("shard" + std::to_string(paths.size()) + ".bin", counting(first, count)));
      first += count;
    }
    return Tokens::open(paths, {.budget = 16_MiB, .engine = EngineKind::kDirect});
  }

  static void expect_crop(std::span<const std::int64_t> x, std::span<const std::int64_t> y,
                          std::uint64_t start) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i], static_cast<std::uint16_t>(start + i));
      ASSERT_EQ(y[i], static_cast<std::uint16_t>(start + i + 1));
    }
  }

  // Every row of the next batch is what explain() says it is.
  static void expect_as_explained(TokenLoader& loader) {
    const auto origins = loader.explain(loader.step());
    const Batch& batch = *loader.next();
    const auto x = batch.x<std::int64_t>(), y = batch.y<std::int64_t>();
    ASSERT_EQ(x.size(), origins.size());
    for (std::size_t i = 0; i < origins.size(); ++i) expect_crop(x[i], y[i], origins[i].start);
  }

  TempFolder folder_;
};

TEST_F(Loader, XyIsWhatSlicingGives) {
  for (const EngineKind engine :
       {EngineKind::kDirect, EngineKind::kAuto, EngineKind::kRead, EngineKind::kMap}) {
    const Tokens stream = tokens(200'000, engine);
    ASSERT_EQ(stream.size(), 200'000u);
    const std::vector<std::uint64_t> starts = {0, 5, 199'899, 70'001, 5};
    std::vector<std::int64_t> x(starts.size() * 100), y(x.size());
    stream.xy(starts, 100, std::span(x), std::span(y));
    for (std::size_t i = 0; i < starts.size(); ++i) {
      expect_crop(std::span(x).subspan(i * 100, 100), std::span(y).subspan(i * 100, 100),
                  starts[i]);
    }
  }
}

TEST_F(Loader, XyTakesBlocksLongerThanItsBuffers) {
  const Tokens stream = tokens(1'000'000);
  const std::vector<std::uint64_t> starts = {1, 99'998};
  std::vector<std::int64_t> x(starts.size() * 900'001), y(x.size());
  stream.xy(starts, 900'001, std::span(x), std::span(y));
  for (std::size_t i = 0; i < starts.size(); ++i) {
    expect_crop(std::span(x).subspan(i * 900'001, 900'001),
                std::span(y).subspan(i * 900'001, 900'001), starts[i]);
  }
}

TEST_F(Loader, CropsCrossShards) {
  const Tokens stream = shards({100, 3, 1, 500, 7, 90});
  ASSERT_EQ(stream.size(), 701u);
  std::vector<std::uint64_t> starts;
  for (std::uint64_t i = 0; i < 701 - 20; ++i) starts.push_back(i);
  std::vector<std::int64_t> x(starts.size() * 20), y(x.size());
  stream.xy(starts, 20, std::span(x), std::span(y));
  for (std::size_t i = 0; i < starts.size(); ++i) {
    expect_crop(std::span(x).subspan(i * 20, 20), std::span(y).subspan(i * 20, 20), starts[i]);
  }
}

TEST_F(Loader, XyOutsideTheStreamIsRefusedWithTheNumbers) {
  const Tokens stream = tokens(1000);
  std::vector<std::int64_t> x(100), y(100);
  try {
    stream.xy(std::vector<std::uint64_t>{900}, 100, std::span(x), std::span(y));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIndex);
    EXPECT_NE(std::string(error.what()).find("0 to 899"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(stream.xy(std::vector<std::uint64_t>{899}, 100, std::span(x), std::span(y)));
  x.resize(99);
  EXPECT_THROW(stream.xy(std::vector<std::uint64_t>{0}, 100, std::span(x), std::span(y)), Error);
}

TEST_F(Loader, BatchesAreWhatExplainSays) {
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

TEST_F(Loader, ShuffledRanksTogetherShowEachBlockOnceAnEpoch) {
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

RC_GTEST_FIXTURE_PROP(Loader, AStepIsTheSameSamplesForEveryWorld, ()) {
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

TEST_F(Loader, ResumesWithAnotherWorldAndDepth) {
  const Tokens stream = tokens(20'000);
  const LoaderOptions options{
      .batch_size = 8, .block_size = 64, .order = CropOrder::kCovering, .seed = 77};
  TokenLoader whole(stream, options);
  for (int i = 0; i < 57; ++i) whole.next();
  const LoaderState state = LoaderState::parse(whole.state().text());
  std::map<std::int64_t, std::vector<std::int64_t>> expected;  // by first token
  for (int i = 0; i < 3; ++i) {
    const auto rows = whole.next()->x<std::int64_t>();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      expected[rows[r][0]] = {rows[r].begin(), rows[r].end()};
    }
  }
  std::size_t found = 0;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    LoaderOptions split = options;
    split.batch_size = 2;
    split.rank = rank;
    split.world = 4;
    split.prefetch = static_cast<std::uint32_t>(rank);
    TokenLoader part(stream, split);
    part.load(state);
    EXPECT_EQ(part.step(), 57u);
    for (int i = 0; i < 3; ++i) {
      const auto rows = part.next()->x<std::int64_t>();
      for (std::size_t r = 0; r < rows.size(); ++r, ++found) {
        const auto at = expected.find(rows[r][0]);
        ASSERT_NE(at, expected.end());
        EXPECT_TRUE(std::ranges::equal(at->second, rows[r]));
      }
    }
  }
  EXPECT_EQ(found, 24u);
}

TEST_F(Loader, SeekingBackAndForthGivesTheSameBatches) {
  const Tokens stream = tokens(20'000);
  TokenLoader loader(stream, {.batch_size = 4, .block_size = 16, .seed = 5});
  std::vector<std::vector<std::int64_t>> first;
  for (int i = 0; i < 20; ++i) first.push_back(values(loader.next()->x<std::int64_t>()));
  for (const std::uint64_t step : {19, 0, 7, 8, 3}) {
    loader.seek(step);
    const Batch& batch = *loader.next();
    EXPECT_EQ(batch.step(), step);
    EXPECT_EQ(values(batch.x<std::int64_t>()), first[step]);
  }
}

TEST_F(Loader, StateOfOtherDataIsRefusedAndTheDifferenceNamed) {
  TokenLoader loader(tokens(1000), {.batch_size = 2, .block_size = 8, .seed = 1});
  const LoaderState state = loader.state();
  const auto complaint = [&](LoaderOptions options, std::uint64_t count) -> std::string {
    TokenLoader other(tokens(count), options);
    try {
      other.load(state);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(complaint({.batch_size = 2, .block_size = 8, .seed = 1}, 1000), "accepted");
  EXPECT_NE(complaint({.batch_size = 2, .block_size = 8, .seed = 1}, 1001).find("tokens=1001"),
            std::string::npos);
  EXPECT_NE(complaint({.batch_size = 2, .block_size = 8, .seed = 2}, 1000).find("seed is 1"),
            std::string::npos);
  EXPECT_NE(complaint({.batch_size = 2, .block_size = 9, .seed = 1}, 1000).find("block_size is 8"),
            std::string::npos);
  EXPECT_NE(
      complaint({.batch_size = 2, .block_size = 8, .order = CropOrder::kShuffled, .seed = 1}, 1000)
          .find("order is random"),
      std::string::npos);
}

TEST_F(Loader, StateThatIsNoWholeStepIsRefused) {
  const Tokens stream = tokens(1000);
  TokenLoader loader(stream, {.batch_size = 2, .block_size = 8});
  loader.next();
  TokenLoader wider(stream, {.batch_size = 3, .block_size = 8});
  EXPECT_THROW(wider.load(loader.state()), Error);
}

TEST_F(Loader, StateTextIsReadBackAndNonsenseRefused) {
  TokenLoader loader(tokens(1000), {.batch_size = 2, .block_size = 8, .seed = 1});
  loader.next();
  EXPECT_EQ(LoaderState::parse(loader.state().text()), loader.state());
  EXPECT_LT(loader.state().text().size(), 300u);
  for (const char* text : {"", "evenkeel-loader-state 1", "evenkeel-loader-state 2 samples=1",
                           "evenkeel-loader-state 1 samples=-1 seed=0 block_size=1 order=random x",
                           "evenkeel-loader-state 1 samples=1 seed=0 block_size=1 order=x y"}) {
    EXPECT_THROW(LoaderState::parse(text), Error) << text;
  }
}

TEST_F(Loader, ValidationGivesTheSameFixedBatchesEachTime) {
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

TEST_F(Loader, MixturesKeepToTheirSharesAndReadTheRightSet) {
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
  // One rank's part; all ranks together are exact to within one.
  EXPECT_NEAR(taken[1], 250, 20);
  const auto expected = values(loader.next()->x<std::int64_t>());
  TokenLoader again({{a, 3}, {b, 1}}, options);
  again.seek(200);
  EXPECT_EQ(values(again.next()->x<std::int64_t>()), expected);
  TokenLoader other({{a, 2}, {b, 1}}, options);
  EXPECT_THROW(other.load(loader.state()), Error);
}

TEST_F(Loader, CallersMemoryIsUsedAndKeptAsLongAsPromised) {
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

TEST_F(Loader, EpochsEndAndTheNextLoopGoesOn) {
  const Tokens stream = tokens(16 * 10 + 1);  // 10 blocks
  const LoaderOptions options{
      .batch_size = 3, .block_size = 16, .order = CropOrder::kShuffled, .seed = 1, .epochs = 2};
  TokenLoader loader(stream, options);
  EXPECT_EQ(loader.size(), 6u);  // of 20 samples, 3 a step
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

TEST_F(Loader, AStepThatCannotBeCountedIsRefused) {
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

TEST_F(Loader, MessagesSayWhatWasWrongFirst) {
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

TEST_F(Loader, ClosedItThrows) {
  const Budget budget(16_MiB);
  const Tokens stream = Tokens::open(folder_.write("tokens.bin", counting(0, 20'000)),
                                     {.budget = budget, .engine = EngineKind::kDirect});
  const std::uint64_t before = budget.in_use();
  {
    TokenLoader loader(stream, {.batch_size = 4, .block_size = 16});
    loader.next();
    loader.close();
    loader.close();
    EXPECT_THROW(loader.next(), Error);
    EXPECT_THROW(loader.seek(0), Error);
  }
  EXPECT_EQ(budget.in_use(), before);
}

// A thread that waits for a batch throws when another one closes the loader.
TEST_F(Loader, ClosingWhileAnotherThreadTakesBatches) {
  const Tokens stream = tokens(200'000, EngineKind::kRead);
  for (int i = 0; i < 20; ++i) {
    TokenLoader loader(stream, {.batch_size = 16, .block_size = 256});
    std::atomic<int> taken = 0;
    std::thread user([&] {
      EXPECT_THROW(
          for (;;) {
            loader.next();
            ++taken;
          },
          Error);
    });
    while (taken < 3) std::this_thread::yield();
    loader.close();
    user.join();
  }
}

// Several threads take from one loader: each batch once.
TEST_F(Loader, EachBatchIsLentOnce) {
  const Tokens stream = tokens(200'000, EngineKind::kRead);
  TokenLoader::Impl loader({{stream, 1}}, {.batch_size = 4, .block_size = 64, .steps = 600}, true);
  std::mutex mutex;
  std::vector<std::uint64_t> steps;
  const auto take_all = [&] {
    for (;;) {
      TokenLoader::Impl::Lent lent;
      const auto outcome =
          loader.lend(lent, ReadAhead::Clock::now() + std::chrono::milliseconds(10));
      if (outcome == ReadAhead::Outcome::kEnd) return;
      if (outcome == ReadAhead::Outcome::kTimeout) continue;
      const auto origins = loader.explain(lent.batch.step());
      for (std::size_t i = 0; i < origins.size(); ++i) {
        expect_crop(lent.batch.x<std::int64_t>()[i], lent.batch.y<std::int64_t>()[i],
                    origins[i].start);
      }
      const std::lock_guard lock(mutex);
      steps.push_back(lent.batch.step());
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(take_all);
  for (std::thread& thread : threads) thread.join();
  std::ranges::sort(steps);
  ASSERT_EQ(steps.size(), 600u);
  for (std::uint64_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i], i);
}

TEST_F(Loader, OtherOutputTypes) {
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

TEST_F(Loader, FewerBuffersWhereTheBudgetIsSmall) {
  const std::string path = folder_.write("small.bin", counting(0, 3'000'000));
  const Tokens stream = Tokens::open(path, {.budget = 4_MiB});
  TokenLoader loader(stream, {.batch_size = 32, .block_size = 1024, .prefetch = 100});
  EXPECT_GE(loader.buffers(), 1);
  EXPECT_LT(loader.buffers(), 10);
  expect_as_explained(loader);
  EXPECT_LE(stream.budget().peak(), 4_MiB);
  try {
    TokenLoader(stream, {.batch_size = 1024, .block_size = 1024});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBudget);
  }
}

TEST_F(Loader, ErrorsOfTheReadingThreadArriveAtNext) {
  const std::string path = folder_.write("cut.bin", counting(0, 2'000'000));
  const Tokens stream = Tokens::open(path, {.budget = 8_MiB, .engine = EngineKind::kDirect});
  TokenLoader loader(stream, {.batch_size = 16, .block_size = 256, .prefetch = 2});
  loader.next();
  std::filesystem::resize_file(path, 4096);
  try {
    for (int i = 0; i < 1000; ++i) loader.next();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.path(), path);
    EXPECT_TRUE(error.offset().has_value()) << error.what();
  }
  EXPECT_THROW(loader.next(), Error);  // and stays, until sought
}

TEST_F(Loader, WorkersThatTakeTurnsTogetherGiveAllStepsInOrder) {
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

// Just written, so cached, and larger than the budget: the finishing thread reads, too.
TEST_F(Loader, CachedBatchesAreTheSameHoweverManyThreadsReadThem) {
  const Tokens stream = tokens(12'000'000, EngineKind::kAuto);
  TokenLoader loader(stream, {.batch_size = 16, .block_size = 256, .prefetch = 6});
  for (int i = 0; i < 400; ++i) expect_as_explained(loader);
  loader.seek(100'000);
  for (int i = 0; i < 400; ++i) expect_as_explained(loader);
}

TEST_F(Loader, ACachedFileThatIsCutArrivesAsAnErrorWhoeverReadsIt) {
  const Tokens stream = tokens(12'000'000, EngineKind::kAuto);
  TokenLoader loader(stream, {.batch_size = 16, .block_size = 256, .prefetch = 6});
  for (int i = 0; i < 100; ++i) expect_as_explained(loader);
  std::filesystem::resize_file(folder_.path("tokens.bin"), 4096);
  EXPECT_THROW(
      {
        for (int i = 0; i < 1000; ++i) expect_as_explained(loader);
      },
      Error);
  EXPECT_THROW(loader.next(), Error);
}

TEST_F(Loader, InAChildOfForkTheLoaderIsClosedAndTheTokensAreNot) {
  if (kUnderTsan || kUnderAsan) GTEST_SKIP() << "sanitizers do not take forks beside threads";
  const Tokens stream = tokens(50'000);
  TokenLoader loader(stream, {.batch_size = 4, .block_size = 64});
  loader.next();
  const auto kind_of = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kInvalid;
  };
  EXPECT_EQ(in_child([&] {
              std::vector<std::int64_t> x(100), y(100);
              stream.xy(std::vector<std::uint64_t>{7}, 100, std::span(x), std::span(y));
              const bool right = x[0] == 7 && y[99] == 107;
              const bool closed = kind_of([&] { loader.next(); }) == ErrorKind::kClosed &&
                                  kind_of([&] { loader.seek(0); }) == ErrorKind::kClosed &&
                                  kind_of([&] { loader.step(); }) == ErrorKind::kClosed;
              { const TokenLoader gone(std::move(loader)); }  // does not wait for threads
              TokenLoader own(stream, {.batch_size = 4, .block_size = 64});
              return std::string(right && closed && own.next() ? "well" : "not so");
            }),
            "well");
  expect_as_explained(loader);
}

TEST_F(Loader, BadOptionsAreRefused) {
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
