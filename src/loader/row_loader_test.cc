// labels: threads reads
#include "loader/row_loader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "loader/test_row_loader.h"

namespace evenkeel {
namespace {

class RowLoader : public RowLoaderTest {};

TEST_F(RowLoader, FieldsBelongTogetherInEveryOrderAndEngine) {
  for (const EngineKind engine :
       {EngineKind::kDirect, EngineKind::kAuto, EngineKind::kRead, EngineKind::kMap}) {
    const Array x = features(1000, engine), y = labels(1000, engine);
    for (const OrderKind order :
         {OrderKind::kSequential, OrderKind::kShuffled, OrderKind::kRandom}) {
      for (const std::uint32_t prefetch : {0, 1, 5}) {
        Loader loader({x, y}, {.batch_size = 60, .order = order, .seed = 3, .prefetch = prefetch});
        for (int i = 0; i < 16; ++i) expect_as_explained(loader, 60);
      }
    }
  }
}

TEST_F(RowLoader, AnEpochShowsEachRowOnceAndTheLastBatchIsShort) {
  const Array x = features(103), y = labels(103);
  Loader loader({x, y}, {.batch_size = 10, .seed = 5});
  EXPECT_EQ(loader.size(), 11u);
  EXPECT_EQ(loader.epoch_rows(), 103u);
  std::vector<std::vector<std::int32_t>> epochs(3);
  for (auto& rows : epochs) {
    std::uint64_t batches = 0;
    for (const RowBatch& batch : loader) {
      EXPECT_EQ(batch.rows(), ++batches == 11 ? 3u : 10u);
      for (std::size_t i = 0; i < batch.rows(); ++i) {
        rows.push_back(batch.as<std::int32_t>()[i][0] / 1000);
      }
    }
    EXPECT_EQ(batches, 11u);
    EXPECT_EQ(std::set(rows.begin(), rows.end()).size(), 103u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST_F(RowLoader, AFieldThatDoesNotExistIsAnErrorOfTheLibrary) {
  Loader loader({features(20), labels(20)}, {.batch_size = 5});
  const RowBatch& batch = *loader.next();
  const auto expect_index = [](const auto& call) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIndex);
      EXPECT_STREQ(error.what(), "batch: field 2 of 2");
    }
  };
  expect_index([&] { batch.dtype(2); });
  expect_index([&] { batch.bytes(2); });
  expect_index([&] { batch.as<std::int32_t>(2); });
}

TEST_F(RowLoader, TheOrderIsThatOfChunks) {
  const Array x = features(211);
  Loader loader(x, {.batch_size = 50, .seed = 9, .epochs = 2});
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    const Sequence expected(shuffled(9, epoch), 211);
    for (std::uint64_t at = 0; at < 211;) {
      const RowBatch& batch = *loader.next();
      for (std::size_t i = 0; i < batch.rows(); ++i, ++at) {
        ASSERT_EQ(batch.as<std::int32_t>()[i][0] / 1000, static_cast<std::int32_t>(expected[at]));
      }
    }
  }
  EXPECT_EQ(loader.next(), nullptr);
}

TEST_F(RowLoader, DropLastLeavesOutOtherRowsEachEpoch) {
  const Array x = features(103), y = labels(103);
  Loader loader({x, y}, {.batch_size = 10, .seed = 5, .epochs = 40, .drop_last = true});
  EXPECT_EQ(loader.size(), 400u);
  std::set<std::uint64_t> seen;
  std::uint64_t batches = 0;
  for (const RowBatch& batch : loader) {
    EXPECT_EQ(batch.rows(), 10u);
    for (const RowOrigin& origin : loader.explain(batch.step())) {
      EXPECT_EQ(origin.epoch, batch.step() / 10);
      seen.insert(origin.row);
    }
    ++batches;
  }
  EXPECT_EQ(batches, 400u);
  EXPECT_EQ(seen.size(), 103u);
}

// The ranks divide the short step evenly, so that all have the same number of steps.
TEST_F(RowLoader, RanksTogetherShowEachRowOnce) {
  const Array x = features(103), y = labels(103);
  for (const std::uint64_t world : {1, 2, 3, 5}) {
    std::map<std::uint64_t, int> seen;
    std::set<std::uint64_t> sizes;
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      Loader loader({x, y}, {.batch_size = 6, .rank = rank, .world = world});
      sizes.insert(loader.size());
      for (const RowBatch& batch : loader) {
        const auto origins = loader.explain(batch.step());
        ASSERT_EQ(batch.rows(), origins.size());
        for (std::size_t i = 0; i < origins.size(); ++i) {
          EXPECT_EQ(batch.as<std::int64_t>(1)[i][0], static_cast<std::int64_t>(origins[i].row) * 7);
          ++seen[origins[i].row];
        }
      }
    }
    EXPECT_EQ(sizes.size(), 1u);
    EXPECT_EQ(seen.size(), 103u);
    for (const auto& [row, times] : seen) EXPECT_EQ(times, 1) << row;
  }
}

RC_GTEST_FIXTURE_PROP(RowLoader, AStepHasTheSameRowsForEveryWorld, ()) {
  const auto rows = *rc::gen::inRange<std::uint64_t>(1, 300);
  const Array x = features(rows);
  const auto order =
      *rc::gen::element(OrderKind::kSequential, OrderKind::kShuffled, OrderKind::kRandom);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto step = *rc::gen::inRange<std::uint64_t>(0, 10'000);
  const auto rows_of = [&](std::uint64_t world) {
    std::map<std::uint64_t, std::uint64_t> row_at;
    for (std::uint64_t rank = 0; rank < world; ++rank) {
      const Loader loader(x, {.batch_size = 12 / world,
                              .order = order,
                              .seed = seed,
                              .rank = rank,
                              .world = world,
                              .prefetch = 0});
      for (const RowOrigin& origin : loader.explain(step)) row_at[origin.sample] = origin.row;
    }
    return row_at;
  };
  const auto alone = rows_of(1);
  for (const std::uint64_t world : {2, 3, 4, 6, 12}) RC_ASSERT(rows_of(world) == alone);
}

TEST_F(RowLoader, ResumesWithAnotherWorldAndBatchSize) {
  const Array x = features(1000), y = labels(1000);
  Loader whole({x, y}, {.batch_size = 24, .seed = 7, .epochs = 3});
  // This is in the second epoch: an epoch has 42 steps.
  for (int i = 0; i < 60; ++i) whole.next();
  const RowLoaderState state = RowLoaderState::parse(whole.state().text());
  EXPECT_EQ(state, whole.state());
  EXPECT_EQ(state.samples, 1000u + 18 * 24);
  std::map<std::uint64_t, std::uint64_t> expected, found;
  for (const RowOrigin& origin : whole.explain(60)) expected[origin.sample] = origin.row;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    Loader part({x, y}, {.batch_size = 6, .seed = 7, .rank = rank, .world = 4, .epochs = 3});
    part.load(state);
    EXPECT_EQ(part.step(), 60u);
    for (const RowOrigin& origin : part.explain(part.step())) found[origin.sample] = origin.row;
    expect_as_explained(part, 6);
  }
  EXPECT_EQ(found, expected);
  Loader smaller({x, y}, {.batch_size = 8, .seed = 7, .epochs = 3});
  smaller.load(state);
  EXPECT_EQ(smaller.step(), 125u + 54);  // 125 steps of 8 are an epoch
  expect_as_explained(smaller, 8);
  Loader other({x, y}, {.batch_size = 100, .seed = 7});
  expect_in(complaint([&] { other.load(state); }), "not divisible by world x batch_size = 100");
}

// An epoch has 11 steps, so its last step is not the last turn of every worker.
TEST_F(RowLoader, WorkersTogetherShowEachEpochOnceInEveryLoop) {
  const Array x = features(103);
  for (const std::uint64_t stride : {2, 3, 4, 11}) {
    std::vector<std::vector<std::uint64_t>> steps(6);  // of each loop
    for (std::uint64_t phase = 0; phase < stride; ++phase) {
      Loader loader(x, {.batch_size = 10, .seed = 5, .workers = {stride, phase}});
      for (auto& loop : steps) {
        for (const RowBatch& batch : loader) loop.push_back(batch.step());
      }
    }
    for (std::uint64_t loop = 0; loop < steps.size(); ++loop) {
      std::ranges::sort(steps[loop]);
      std::vector<std::uint64_t> expected(11);
      for (std::uint64_t i = 0; i < 11; ++i) expected[i] = 11 * loop + i;
      EXPECT_EQ(steps[loop], expected) << stride << " workers, loop " << loop;
    }
  }
}

TEST_F(RowLoader, AStateAfterTheLastStepOfAnEpochIsTheNextEpochsFirst) {
  const Array x = features(103);
  Loader loader(x, {.batch_size = 10, .seed = 1});
  for (int i = 0; i < 11; ++i) loader.next();
  EXPECT_EQ(loader.next(), nullptr);
  Loader other(x, {.batch_size = 20, .seed = 1});
  other.load(loader.state());
  EXPECT_EQ(other.explain(other.step()).front().epoch, 1u);
  EXPECT_EQ(other.explain(other.step()).front().sample, 103u);
}

TEST_F(RowLoader, AStateOfOtherDataOrAnotherOrderIsRefusedAndTheDifferenceNamed) {
  const Array x = features(100), y = labels(100);
  const RowLoaderState state = Loader(x, {.batch_size = 4, .seed = 1}).state();
  const auto load = [&](const std::function<Loader()>& make) {
    return complaint([&] { make().load(state); });
  };
  EXPECT_EQ(load([&] { return Loader(x, {.batch_size = 4, .seed = 1}); }), "accepted");
  expect_in(load([&] { return Loader(x, {.batch_size = 4, .seed = 2}); }), "its seed is 1");
  expect_in(load([&] {
              return Loader(x, {.batch_size = 4, .order = OrderKind::kSequential, .seed = 1});
            }),
            "its order is shuffled, this loader's is sequential");
  expect_in(load([&] { return Loader({x, y}, {.batch_size = 4, .seed = 1}); }), "its data is");
  expect_in(complaint([] { RowLoaderState::parse("evenkeel-loader-state 1 samples=3"); }),
            "not the state of a loader of rows");
  expect_in(complaint([] { RowLoaderState::parse("evenkeel-row-loader-state 1 samples=x"); }),
            "samples is not a number");
}

TEST_F(RowLoader, WrongInputIsRefusedBeforeAnythingIsRead) {
  const Array x = features(100), y = labels(99);
  const auto wrong = [&](const RowLoaderOptions& options) {
    return complaint([&] { const Loader loader(x, options); });
  };
  expect_in(complaint([&] {
              const Loader loader({x, y}, {.batch_size = 4});
            }),
            "same number of rows; there are 100 rows in ");
  expect_in(wrong({.batch_size = 0}), "batch_size must be at least 1");
  expect_in(wrong({.batch_size = 4, .rank = 2, .world = 2}), "rank must be 0 or 1 for world=2");
  expect_in(wrong({.batch_size = 4, .steps = 3, .epochs = 1}), "steps and epochs exclude");
  expect_in(wrong({.batch_size = 4, .order = OrderKind::kRandom, .epochs = 1}), "has no epochs");
  expect_in(wrong({.batch_size = 101, .drop_last = true}), "an epoch has 100 samples, less than");
  expect_in(wrong({.batch_size = 101, .drop_last = true}), "keep the short batches (drop_last)");
  expect_in(wrong({.batch_size = std::uint64_t{1} << 60}), "batch_size is too large");
  expect_in(wrong({.batch_size = std::uint64_t{1} << 30}), "need 21,474,836,480 bytes each");
  expect_in(complaint([] { const Loader loader(std::vector<LoaderField>{}, {}); }),
            "no arrays were given");
  expect_in(complaint([] { parse_order("sorted"); }),
            "the orders are sequential, shuffled, random");
}

TEST_F(RowLoader, BlocksAreOnlyForTheirOrder) {
  const Array x = features(100);
  Loader loader(x, {.batch_size = 10, .blocks = {8, 16, 3}});
  EXPECT_EQ(loader.blocks(), (BlockOptions{0, 0, 0}));
  loader.seek(4);
  const RowLoaderState state = loader.state();
  loader.seek(0);
  loader.load(RowLoaderState::parse(state.text()));
  EXPECT_EQ(loader.step(), 4u);
}

TEST_F(RowLoader, AMixtureTakesSetsByTheirWeights) {
  const Array a = features(50, EngineKind::kDirect, "a.bin"),
              b = features(80, EngineKind::kDirect, "b.bin", 500'000);
  Loader loader({{{a}, 3}, {{b}, 1}}, {.batch_size = 20, .seed = 2, .steps = 30});
  EXPECT_EQ(loader.size(), 30u);
  std::map<std::size_t, std::map<std::uint64_t, int>> seen;
  for (const RowBatch& batch : loader) {
    const auto origins = loader.explain(batch.step());
    for (std::size_t i = 0; i < origins.size(); ++i) {
      const std::int32_t base = origins[i].set == 0 ? 0 : 500'000;
      ASSERT_EQ(batch.as<std::int32_t>()[i][4],
                base + static_cast<std::int32_t>(origins[i].row) * 1000 + 4);
      ++seen[origins[i].set][origins[i].row];
    }
  }
  // 450 samples of the first are 9 epochs of 50; 150 of the second are one of 80 and a part.
  for (const auto& [row, times] : seen[0]) EXPECT_EQ(times, 9) << row;
  EXPECT_EQ(seen[1].size(), 80u);
  const Array wide = Array::open(folder_.write("w.bin", numbered(0, 50, 6)),
                                 {.dtype = DType::of<std::int32_t>(), .shape = {-1, 6}});
  expect_in(complaint([&] {
              const Loader other({{{a}, 1}, {{wide}, 1}}, {.batch_size = 2});
            }),
            "stores int32 x 6");
  expect_in(complaint([&] {
              const Loader other({{{a}, 1}, {{a, b}, 1}}, {.batch_size = 2});
            }),
            "a set has 2 arrays, the first has 1");
}

TEST_F(RowLoader, WorkersTakeTurnsAtTheSteps) {
  const Array x = features(500);
  std::map<std::uint64_t, std::vector<std::int32_t>> batches;
  for (std::uint64_t phase = 0; phase < 3; ++phase) {
    Loader loader(x, {.batch_size = 30, .seed = 4, .workers = {3, phase}});
    for (const RowBatch& batch : loader) {
      const auto flat = batch.as<std::int32_t>().flat();
      batches[batch.step()] = {flat.begin(), flat.end()};
    }
  }
  Loader alone(x, {.batch_size = 30, .seed = 4});
  ASSERT_EQ(batches.size(), alone.size());
  for (const RowBatch& batch : alone) {
    EXPECT_TRUE(std::ranges::equal(batch.as<std::int32_t>().flat(), batches.at(batch.step())));
  }
}

TEST_F(RowLoader, SeekingBackAndForthGivesTheSameBatches) {
  const Array x = features(400), y = labels(400);
  Loader loader({x, y}, {.batch_size = 9, .seed = 5, .epochs = 2});
  for (const std::uint64_t step : {19, 0, 7, 8, 88, 3, 3, 44}) {
    loader.seek(step);
    EXPECT_EQ(loader.step(), step);
    expect_as_explained(loader, step % 45 == 44 ? 4 : 9);
  }
}

}  // namespace
}  // namespace evenkeel
