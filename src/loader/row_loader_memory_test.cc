// labels: threads reads
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "loader/row_loader.h"
#include "loader/test_closing.h"
#include "loader/test_row_loader.h"

namespace evenkeel {
namespace {

class RowLoaderMemory : public RowLoaderTest {};

TEST_F(RowLoaderMemory, MemoryOfTheCallerIsUsed) {
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

// A truncated file is an error that names the file; the batches before it are valid.
TEST_F(RowLoaderMemory, AnErrorInOneArrayArrivesAtNext) {
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

TEST_F(RowLoaderMemory, StaysWithinTheBudgetAndReadsAheadLessInASmallOne) {
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

// Nothing is allocated for batches that the budget does not hold.
TEST_F(RowLoaderMemory, ReadsAheadAsMuchAsTheBudgetHolds) {
  budget_ = Budget(4_MiB);
  const Array x = features(4000, EngineKind::kAuto), y = labels(4000, EngineKind::kAuto);
  Loader loader({x, y}, {.batch_size = 1000, .prefetch = UINT32_MAX});
  EXPECT_GT(loader.buffers(), 20);
  EXPECT_LT(loader.buffers(), 200);
  for (int i = 0; i < 3; ++i) expect_as_explained(loader, 1000);
  EXPECT_LE(budget_.peak(), 4_MiB);
}

// In every order, and with batches that are still valid: no batch is lost or repeated.
TEST_F(RowLoaderMemory, ASmallerBudgetTakesBackWhatIsReadAhead) {
  const Array x = features(60'000, EngineKind::kRead), y = labels(60'000, EngineKind::kRead);
  for (const OrderKind order : {OrderKind::kSequential, OrderKind::kShuffled, OrderKind::kBlocks}) {
    const std::uint64_t without_loader = budget_.in_use();
    Loader loader({x, y}, {.batch_size = 1000,
                           .order = order,
                           .seed = 3,
                           .blocks = {100, 50, 12},
                           .prefetch = 9,
                           .buffers = {.keep = 2, .memory = {}}});
    const int before = loader.buffers();
    ASSERT_EQ(before, 12);
    for (int i = 0; i < 7; ++i) expect_as_explained(loader, 1000);
    const std::uint64_t used = budget_.in_use() - budget_.cached();
    budget_.resize(used - 50'000);
    EXPECT_LT(loader.buffers(), before);
    EXPECT_GT(loader.buffers(), before / 2);
    EXPECT_LE(budget_.in_use(), budget_.limit());
    for (int i = 0; i < 9; ++i) expect_as_explained(loader, 1000);
    const std::string refused = complaint([&] { budget_.resize(without_loader); });
    expect_in(refused, "for reading ahead could be given back");
    const int after = loader.buffers();
    EXPECT_GT(after, 3) << "a refused resize changes nothing";
    budget_.resize(used - static_cast<std::uint64_t>(before - 3) * 28'000);
    EXPECT_LT(loader.buffers(), after);
    EXPECT_GE(loader.buffers(), 3);  // the current batch, and two that are kept
    for (std::uint64_t left = 60 - loader.step(); left > 0; --left) {
      expect_as_explained(loader, 1000);
    }
    EXPECT_EQ(loader.next(), nullptr);
    loader.close();
    budget_.resize(16_MiB);
  }
}

TEST_F(RowLoaderMemory, AClosedLoaderHasNothingToGiveBack) {
  const Array x = features(20'000, EngineKind::kRead), y = labels(20'000, EngineKind::kRead);
  Loader closed({x, y}, {.batch_size = 500, .prefetch = 6});
  Loader open({x, y}, {.batch_size = 500, .prefetch = 6});
  closed.close();
  const std::uint64_t used = budget_.in_use() - budget_.cached();
  // More than one loader can give back.
  expect_in(complaint([&] { budget_.resize(used - 120'000); }), "could be given back");
  EXPECT_EQ(open.buffers(), 7) << "a refused resize changes nothing";
}

TEST_F(RowLoaderMemory, ABatchStaysAsItIsWhileReadAheadIsTakenBack) {
  const Array x = features(20'000, EngineKind::kRead), y = labels(20'000, EngineKind::kRead);
  Loader loader({x, y}, {.batch_size = 500, .prefetch = 6});
  const auto origins = loader.explain(0);
  const RowBatch& batch = *loader.next();
  budget_.resize(budget_.in_use() - budget_.cached() - 40'000);
  EXPECT_LT(loader.buffers(), 7);
  for (std::size_t i = 0; i < origins.size(); ++i) {
    EXPECT_EQ(batch.as<std::int64_t>(1)[i][0], static_cast<std::int64_t>(origins[i].row) * 7);
  }
  for (int i = 0; i < 10; ++i) expect_as_explained(loader, 500);
}

// The budget shrinks while other threads take and keep batches.
TEST_F(RowLoaderMemory, ResizingWhileBatchesAreLent) {
  const Array x = features(8000, EngineKind::kRead), y = labels(8000, EngineKind::kRead);
  Loader::Impl loader({{{x, y}, 1}}, {.batch_size = 10, .prefetch = 30}, true);
  std::atomic<std::uint64_t> rows = 0, wrong = 0;
  const auto take_all = [&] {
    std::deque<Loader::Impl::Lent> held;
    const auto look_at_first = [&] {
      const auto origins = loader.explain(held.front().batch.step());
      for (std::size_t i = 0; i < origins.size(); ++i) {
        wrong += held.front().batch.as<std::int64_t>(1)[i][0] !=
                 static_cast<std::int64_t>(origins[i].row) * 7;
      }
      rows += origins.size();
      held.pop_front();
    };
    for (;;) {
      Loader::Impl::Lent lent;
      const auto outcome =
          loader.lend(lent, ReadAhead::Clock::now() + std::chrono::milliseconds(10));
      if (outcome == ReadAhead::Outcome::kEnd) break;
      if (outcome == ReadAhead::Outcome::kTimeout) continue;
      held.push_back(std::move(lent));
      if (held.size() > 3) look_at_first();
    }
    while (!held.empty()) look_at_first();
  };
  std::thread one(take_all), two(take_all);
  for (int i = 0; i < 10; ++i) {
    try {
      budget_.resize(budget_.in_use() - budget_.cached() - 600);
    } catch (const Error&) {
      break;  // no more can be given back
    }
  }
  one.join();
  two.join();
  EXPECT_LT(loader.buffers(), 31);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(rows, 8000u);
}

// Data that is mapped because it fits the budget is read instead if batches need the memory.
TEST_F(RowLoaderMemory, AMappedArrayGivesWayToBatches) {
  budget_ = Budget(4_MiB);
  const Array x = features(150'000, EngineKind::kAuto);
  ASSERT_EQ(x.engine().chosen, EngineKind::kMap);
  Loader loader(x, {.batch_size = 45'000, .prefetch = 0});
  EXPECT_NE(x.engine().chosen, EngineKind::kMap);
  EXPECT_EQ(loader.next()->rows(), 45'000u);
  EXPECT_LE(budget_.peak(), 4_MiB);
}

TEST_F(RowLoaderMemory, ClosingWhileAnotherThreadTakesBatches) {
  const Array x = features(50'000, EngineKind::kRead), y = labels(50'000, EngineKind::kRead);
  for (int i = 0; i < 10; ++i) {
    Loader loader({x, y}, {.batch_size = 16, .order = OrderKind::kRandom});
    expect_closing_ends_next(loader);
  }
}

// Several threads take batches from one loader, and each batch is taken once.
TEST_F(RowLoaderMemory, EachBatchIsLentOnce) {
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

}  // namespace
}  // namespace evenkeel
