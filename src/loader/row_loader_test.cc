// labels: threads reads
#include "loader/row_loader.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "evenkeel/loader.h"
#include "tests/forked.h"
#include "tests/temp_folder.h"
#include "tests/watchdog.h"

namespace evenkeel {
namespace {

// Number j of row r of file `base` is base + 1000 * r + j, so that any wrong number shows itself.
std::string numbered(std::int32_t base, std::uint64_t rows, std::uint64_t columns) {
  std::string bytes(rows * columns * 4, '\0');
  for (std::uint64_t i = 0; i < rows * columns; ++i) {
    const auto value = base + static_cast<std::int32_t>(i / columns * 1000 + i % columns);
    std::memcpy(bytes.data() + 4 * i, &value, 4);
  }
  return bytes;
}

std::string labels_of(std::uint64_t rows) {
  std::string bytes(rows * 8, '\0');
  for (std::uint64_t i = 0; i < rows; ++i) {
    const auto label = static_cast<std::int64_t>(i * 7);
    std::memcpy(bytes.data() + 8 * i, &label, 8);
  }
  return bytes;
}

class RowLoader : public testing::Test {
 protected:
  Array features(std::uint64_t rows, EngineKind engine = EngineKind::kDirect,
                 const std::string& name = "x.bin", std::int32_t base = 0) {
    return Array::open(folder_.write(name, numbered(base, rows, 5)),
                       {.budget = budget_,
                        .engine = engine,
                        .dtype = DType::of<std::int32_t>(),
                        .shape = {-1, 5}});
  }
  Array labels(std::uint64_t rows, EngineKind engine = EngineKind::kDirect) {
    return Array::open(folder_.write("y.bin", labels_of(rows)),
                       {.budget = budget_, .engine = engine, .dtype = DType::of<std::int64_t>()});
  }

  // Every row of the next batch is what explain() says it is, in each field.
  static void expect_as_explained(Loader& loader, std::size_t rows) {
    const auto origins = loader.explain(loader.step());
    const RowBatch& batch = *loader.next();
    ASSERT_EQ(batch.rows(), rows);
    ASSERT_EQ(origins.size(), rows);
    const auto x = batch.as<std::int32_t>(0);
    const auto y = batch.as<std::int64_t>(1);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::int32_t j = 0; j < 5; ++j) {
        ASSERT_EQ(x[i][j], static_cast<std::int32_t>(origins[i].row) * 1000 + j);
      }
      ASSERT_EQ(y[i][0], static_cast<std::int64_t>(origins[i].row) * 7);
    }
  }

  static std::string complaint(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  static void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  Budget budget_ = 16_MiB;
  TempFolder folder_;
};

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
  // In the second epoch: 42 steps are one.
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
  expect_in(wrong({.batch_size = std::uint64_t{1} << 60}), "batch_size is too large");
  expect_in(wrong({.batch_size = std::uint64_t{1} << 30}), "need 21,474,836,480 bytes each");
  expect_in(complaint([] { const Loader loader(std::vector<LoaderField>{}, {}); }),
            "no arrays were given");
  expect_in(complaint([] { parse_order("sorted"); }),
            "the orders are sequential, shuffled, random");
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

TEST_F(RowLoader, MemoryOfTheCallerIsUsed) {
  const Array x = features(400), y = labels(400);
  std::vector<std::vector<std::byte>> memory;
  RowLoaderOptions options{.batch_size = 9, .seed = 5, .buffers = {.keep = 1, .memory = {}}};
  memory.reserve(6);
  for (int i = 0; i < 3; ++i) {
    std::vector<std::span<std::byte>> fields;
    for (const std::size_t bytes : {9 * 20, 9 * 8}) fields.push_back(memory.emplace_back(bytes));
    options.buffers.memory.push_back(fields);
  }
  Loader loader({x, y}, options);
  for (int i = 0; i < 40; ++i) {
    loader.seek(static_cast<std::uint64_t>(i));
    const RowBatch& batch = *loader.next();
    EXPECT_TRUE(std::ranges::any_of(memory, [&](const auto& one) {
      return one.data() == batch.bytes(1).data() && one.size() == 72;
    }));
  }
  loader.seek(0);
  for (int i = 0; i < 40; ++i) expect_as_explained(loader, 9);
  options.buffers.memory[1].pop_back();
  expect_in(complaint([&] {
              const Loader other({x, y}, options);
            }),
            "memory for a batch needs 180 and 72 bytes; got 180");
}

// A truncated file is an error that names it; the batches before it are good.
TEST_F(RowLoader, AnErrorInOneArrayArrivesAtNext) {
  const Array x = features(100'000), y = labels(100'000);
  Loader loader({x, y}, {.batch_size = 100, .prefetch = 3});
  expect_as_explained(loader, 100);
  std::filesystem::resize_file(folder_.path("y.bin"), 4096);
  expect_in(complaint([&] {
              while (loader.next()) {
              }
            }),
            "y.bin");
  EXPECT_THROW(loader.next(), Error);
}

TEST_F(RowLoader, StaysWithinTheBudgetAndReadsAheadLessInASmallOne) {
  budget_ = Budget(4_MiB);
  const Array x = features(400'000, EngineKind::kAuto), y = labels(400'000, EngineKind::kAuto);
  Loader loader({x, y}, {.batch_size = 20'000, .prefetch = 100});
  EXPECT_GE(loader.buffers(), 1);
  EXPECT_LT(loader.buffers(), 8);
  for (int i = 0; i < 3; ++i) expect_as_explained(loader, 20'000);
  EXPECT_LE(budget_.peak(), 4_MiB);
  loader.close();
  EXPECT_THROW(loader.next(), Error);
}

// Data that is mapped because it fits gives way to batches that would not fit beside it.
TEST_F(RowLoader, AMappedArrayGivesWayToBatches) {
  budget_ = Budget(4_MiB);
  const Array x = features(150'000, EngineKind::kAuto);
  ASSERT_EQ(x.engine().chosen, EngineKind::kMap);
  Loader loader(x, {.batch_size = 45'000, .prefetch = 0});
  EXPECT_NE(x.engine().chosen, EngineKind::kMap);
  EXPECT_EQ(loader.next()->rows(), 45'000u);
  EXPECT_LE(budget_.peak(), 4_MiB);
}

TEST_F(RowLoader, ClosingWhileAnotherThreadTakesBatches) {
  const Array x = features(50'000, EngineKind::kRead), y = labels(50'000, EngineKind::kRead);
  for (int i = 0; i < 10; ++i) {
    Loader loader({x, y}, {.batch_size = 16, .order = OrderKind::kRandom});
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
TEST_F(RowLoader, EachBatchIsLentOnce) {
  const Array x = features(5000, EngineKind::kRead), y = labels(5000, EngineKind::kRead);
  Loader::Impl loader({{{x, y}, 1}}, {.batch_size = 10}, true);
  std::mutex mutex;
  std::set<std::uint64_t> steps;
  const auto take_all = [&] {
    for (;;) {
      Loader::Impl::Lent lent;
      const auto outcome =
          loader.lend(lent, ReadAhead::Clock::now() + std::chrono::milliseconds(10));
      if (outcome == ReadAhead::Outcome::kEnd) return;
      if (outcome == ReadAhead::Outcome::kTimeout) continue;
      const auto origins = loader.explain(lent.batch.step());
      for (std::size_t i = 0; i < origins.size(); ++i) {
        EXPECT_EQ(lent.batch.as<std::int64_t>(1)[i][0],
                  static_cast<std::int64_t>(origins[i].row) * 7);
      }
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(steps.insert(lent.batch.step()).second);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(take_all);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(steps.size(), 500u);
}

constexpr BlockOptions kSmallBlocks = {8, 16, 12};

TEST_F(RowLoader, BlocksComeInTheirOrderFromWindowsAndFromMappings) {
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

TEST_F(RowLoader, BlocksSeekBackAndForth) {
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

// Ranks show each row once, with the rows of a step the same for every world that divides the
// streams, and with rows left out of the last window.
TEST_F(RowLoader, RanksDivideBlocks) {
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

TEST_F(RowLoader, ARankMayHaveNoRowsInAWindow) {
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

TEST_F(RowLoader, AStateSaysWhichBlocks) {
  const Array x = features(1003), y = labels(1003);
  Loader saved(
      {x, y}, {.batch_size = 20, .order = OrderKind::kBlocks, .blocks = kSmallBlocks, .epochs = 2});
  for (int i = 0; i < 60; ++i) saved.next();
  const RowLoaderState state = RowLoaderState::parse(saved.state().text());
  EXPECT_EQ(state, saved.state());
  std::vector<std::uint64_t> expected;
  for (const RowOrigin& origin : saved.explain(60)) expected.push_back(origin.row);
  // Chosen from the budget, and then taken from the state.
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
  // Windows that do not fit, or that this world cannot divide, are refused; the loader goes on.
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

TEST_F(RowLoader, WrongBlocksAreRefused) {
  const Array x = features(100'000), y = labels(100'000);
  const auto wrong = [&](RowLoaderOptions options) {
    options.order = OrderKind::kBlocks;
    return complaint([&] { const Loader loader({x, y}, options); });
  };
  expect_in(wrong({.batch_size = 129, .blocks = kSmallBlocks}),
            "a window of 16 blocks of 8 rows is smaller than a step of 129 rows");
  expect_in(wrong({.batch_size = 4, .blocks = kSmallBlocks, .rank = 0, .world = 5}),
            "a world of 5 does not divide the 12 streams");
  expect_in(wrong({.batch_size = 4, .workers = {2, 0}}), "cannot share its steps among 2 workers");
  budget_ = Budget(2_MiB);
  const Array tight = features(100'000);
  expect_in(complaint([&] {
              const Loader loader(
                  tight, {.batch_size = 4, .order = OrderKind::kBlocks, .blocks = {100, 900, 64}});
            }),
            "do not fit");
  expect_in(complaint([&] {
              const Loader loader({{{x}, 1}, {{tight}, 1}},
                                  {.batch_size = 4, .order = OrderKind::kBlocks});
            }),
            "order \"blocks\" reads one data set");
}

TEST_F(RowLoader, BlocksStayWithinTheBudget) {
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

// Row i has i % 7 values: 100 * i, 100 * i + 1, ...; but row 500 has 3,000.
class RaggedLoader : public RowLoader {
 protected:
  static std::uint64_t length(std::uint64_t row) { return row == 500 ? 3000 : row % 7; }

  void make(std::uint64_t rows, EngineKind engine) {
    std::vector<std::int32_t> values, indices;
    std::vector<std::int64_t> offsets = {0};
    for (std::uint64_t row = 0; row < rows; ++row) {
      for (std::uint64_t i = 0; i < length(row); ++i) {
        values.push_back(static_cast<std::int32_t>(100 * row + i));
        indices.push_back(static_cast<std::int32_t>(i));
      }
      offsets.push_back(static_cast<std::int64_t>(values.size()));
    }
    const auto open = [&](const char* name, const auto& numbers) {
      using Number = typename std::decay_t<decltype(numbers)>::value_type;
      const auto bytes = std::as_bytes(std::span(numbers));
      return std::make_unique<Array>(Array::open(
          folder_.write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}),
          {.budget = budget_, .engine = engine, .dtype = DType::of<Number>()}));
    };
    values_ = open("values.bin", values);
    indices_ = open("indices.bin", indices);
    offsets_ = open("offsets.bin", offsets);
  }

  std::unique_ptr<Array> values_, indices_, offsets_;
};

TEST_F(RaggedLoader, RowsOfDifferentLengthsComeWithTheirOffsets) {
  for (const EngineKind engine : {EngineKind::kDirect, EngineKind::kMap, EngineKind::kRead}) {
    make(1003, engine);
    const Array y = labels(1003);
    for (const std::uint32_t prefetch : {0, 3}) {
      for (const OrderKind order : {OrderKind::kShuffled, OrderKind::kBlocks}) {
        RowLoaderOptions options{.batch_size = 50, .order = order, .seed = 2, .prefetch = prefetch};
        if (order == OrderKind::kBlocks) options.blocks = kSmallBlocks;
        Loader loader({LoaderField::ragged(*values_, *offsets_), y}, options);
        std::uint64_t rows = 0;
        for (const RowBatch& batch : loader) {
          ASSERT_EQ(batch.fields(), 3u);
          const auto values = batch.as<std::int32_t>(0).flat();
          const auto offsets = batch.as<std::int64_t>(1).flat();
          ASSERT_EQ(offsets.size(), batch.rows() + 1);
          for (std::size_t i = 0; i < batch.rows(); ++i, ++rows) {
            const auto row = static_cast<std::uint64_t>(batch.as<std::int64_t>(2)[i][0]) / 7;
            ASSERT_EQ(static_cast<std::uint64_t>(offsets[i + 1] - offsets[i]), length(row));
            for (std::uint64_t j = 0; j < length(row); ++j) {
              ASSERT_EQ(values[static_cast<std::size_t>(offsets[i]) + j],
                        static_cast<std::int32_t>(100 * row + j));
            }
          }
          ASSERT_EQ(values.size(), static_cast<std::size_t>(offsets.back()));
        }
        EXPECT_EQ(rows, 1003u);
      }
    }
  }
}

TEST_F(RaggedLoader, SparseRowsComeAsTheyAreOrDense) {
  make(400, EngineKind::kDirect);
  Loader sparse({LoaderField::csr(*values_, *indices_, *offsets_, 8)}, {.batch_size = 30});
  Loader dense({LoaderField::csr(*values_, *indices_, *offsets_, 8, true)}, {.batch_size = 30});
  for (const RowBatch& batch : sparse) {
    const RowBatch& full = *dense.next();
    const auto origins = dense.explain(full.step());
    const auto indptr = batch.as<std::int64_t>(2).flat();
    ASSERT_EQ(full.as<std::int32_t>().columns(), 8u);
    for (std::size_t i = 0; i < full.rows(); ++i) {
      const std::uint64_t row = origins[i].row;
      ASSERT_EQ(static_cast<std::uint64_t>(indptr[i + 1] - indptr[i]), length(row));
      for (std::uint64_t column = 0; column < 8; ++column) {
        ASSERT_EQ(full.as<std::int32_t>()[i][column],
                  column < length(row) ? static_cast<std::int32_t>(100 * row + column) : 0);
      }
    }
  }
  const auto all = [&](const LoaderField& field) {
    return complaint([&] {
      for (const RowBatch& batch : Loader({field}, {.batch_size = 30})) ASSERT_GT(batch.rows(), 0u);
    });
  };
  expect_in(all(LoaderField::csr(*values_, *indices_, *offsets_, 5)), "in a matrix of 5 columns");
  expect_in(all(LoaderField::csr(*values_, *indices_, *offsets_, std::uint64_t{1} << 62, true)),
            "too large to be dense");
  expect_in(all(LoaderField::csr(*values_, *indices_, *offsets_, 5, true)),
            "an index is 5 in a matrix of 5 columns");
}

// Ranks have their own parts of each window, and a loader goes on from a state.
TEST_F(RaggedLoader, BlocksOfRowsAreReadAtOnce) {
  make(60'000, EngineKind::kDirect);
  const LoaderField field = LoaderField::csr(*values_, *indices_, *offsets_, 3000);
  const RowLoaderOptions options{
      .batch_size = 100, .order = OrderKind::kBlocks, .seed = 3, .blocks = {100, 200, 8}};
  std::set<std::uint64_t> seen;
  const auto check = [&](Loader& loader, const RowBatch& batch) {
    const auto values = batch.as<std::int32_t>(0).flat();
    const auto indices = batch.as<std::int32_t>(1).flat();
    const auto indptr = batch.as<std::int64_t>(2).flat();
    const auto origins = loader.explain(batch.step());
    ASSERT_EQ(indptr.size(), batch.rows() + 1);
    for (std::size_t i = 0; i < batch.rows(); ++i) {
      const std::uint64_t row = origins[i].row;
      const auto begin = static_cast<std::size_t>(indptr[i]);
      ASSERT_EQ(static_cast<std::uint64_t>(indptr[i + 1] - indptr[i]), length(row));
      for (std::uint64_t j = 0; j < length(row); ++j) {
        ASSERT_EQ(values[begin + j], static_cast<std::int32_t>(100 * row + j));
        ASSERT_EQ(indices[begin + j], static_cast<std::int32_t>(j));
      }
      EXPECT_TRUE(seen.insert(row).second);
    }
  };
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    RowLoaderOptions mine = options;
    mine.rank = rank;
    mine.world = 2;
    Loader loader({field}, mine);
    const std::uint64_t before = values_->stats().requests;
    for (const RowBatch& batch : loader) check(loader, batch);
    // A request for each block of 100 rows at most, and some for sections that begin inside one.
    EXPECT_LT(values_->stats().requests - before, 500u);
  }
  EXPECT_EQ(seen.size(), 60'000u);

  Loader first({field}, options), resumed({field}, options);
  for (int i = 0; i < 250; ++i) first.next();
  resumed.load(first.state());
  seen.clear();
  for (int i = 0; i < 20; ++i) {
    const RowBatch& batch = *resumed.next();
    check(resumed, batch);
    const auto expected = first.next()->as<std::int32_t>(0).flat();
    ASSERT_TRUE(std::ranges::equal(batch.as<std::int32_t>(0).flat(), expected));
  }
}

TEST_F(RaggedLoader, WindowsThatDoNotFitAreRefused) {
  budget_ = Budget(2_MiB);
  make(60'000, EngineKind::kDirect);
  expect_in(complaint([&] {
              const Loader loader(
                  {LoaderField::ragged(*values_, *offsets_)},
                  {.batch_size = 100, .order = OrderKind::kBlocks, .blocks = {100, 600, 8}});
            }),
            "rows of about 4 values do not fit");
}

TEST_F(RaggedLoader, OffsetsThatDecreaseOrLeaveTheValuesAreRefused) {
  make(400, EngineKind::kDirect);
  const auto offsets = [&](const std::vector<std::int64_t>& numbers) {
    const auto bytes = std::as_bytes(std::span(numbers));
    return Array::open(
        folder_.write("wrong.bin", {reinterpret_cast<const char*>(bytes.data()), bytes.size()}),
        {.budget = budget_, .dtype = DType::of<std::int64_t>()});
  };
  OrderKind order = OrderKind::kShuffled;
  const auto all = [&](const std::vector<std::int64_t>& numbers) {
    const Array wrong = offsets(numbers);
    return complaint([&] {
      Loader loader({LoaderField::ragged(*values_, wrong)},
                    {.batch_size = 2, .order = order, .blocks = {2, 2, 1}});
      while (loader.next()) {
      }
    });
  };
  EXPECT_EQ(all({0, 3, 3, 10}), "accepted");
  expect_in(all({0, 5, 3, 10}), "row 1 is said to be values 5 to 3");
  expect_in(all({0, 5, 100'000, 10}), "row 1 is said to be values 5 to 100000");
  expect_in(all({0, -1, 3, 10}), "-1");
  expect_in(all({0, 5, 100'000}), "offsets go from 0 to 100,000, but there are ");
  expect_in(all({0}), "the array has no rows");
  order = OrderKind::kBlocks;
  EXPECT_EQ(all({0, 3, 3, 10}), "accepted");
  expect_in(all({0, 5, 3, 10}), "row 1 is said to be values 5 to 3");
  expect_in(all({0, 5, 100'000, 10}), "row 1 is said to be values 5 to 100000");
  expect_in(complaint([&] {
              const Loader loader({LoaderField::ragged(*values_, *offsets_), features(399)},
                                  {.batch_size = 2});
            }),
            "there are 400 rows in ");
  expect_in(complaint([&] {
              const Loader loader({LoaderField::csr(*values_, *offsets_, *offsets_, 3)},
                                  {.batch_size = 2});
            }),
            "401 indices and ");
}

}  // namespace
}  // namespace evenkeel
