// Many arrays that share one budget, and hints that help if they are followed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>
#include <thread>

#include "array/internal.h"
#include "tests/counting_file.h"
#include "tests/watchdog.h"

namespace evenkeel {
namespace {

class SharedBudget : public testing::Test {
 protected:
  // A file that is one hole.
  std::string sparse(std::uint64_t bytes) const {
    const std::string path = folder_.write("sparse" + std::to_string(bytes), "");
    EXPECT_EQ(::truncate(path.c_str(), static_cast<off_t>(bytes)), 0);
    return path;
  }
  static ArrayOptions rows_of(std::int64_t bytes, const Budget& budget,
                              EngineKind engine = EngineKind::kAuto) {
    return {.budget = budget,
            .engine = engine,
            .dtype = DType::of<std::uint8_t>(),
            .shape = {-1, bytes}};
  }
  // The number before `unit` in the hint; 0 if there is none.
  static std::uint64_t number_in(const Error& error, const std::string& unit) {
    std::smatch found;
    const std::string hint = error.hint_text();
    if (!std::regex_search(hint, found, std::regex("([0-9,]+) " + unit))) return 0;
    std::string digits = found[1];
    std::erase(digits, ',');
    return std::stoull(digits);
  }

  TempFolder folder_;
};

TEST_F(SharedBudget, TakesManyArraysAndEachReads) {
  const std::string path = sparse(512_MiB);
  for (const EngineKind engine : {EngineKind::kAuto, EngineKind::kDirect, EngineKind::kRead}) {
    const Budget budget(64_MiB);
    std::vector<Array> arrays;
    for (int i = 0; i < 50; ++i) arrays.push_back(Array::open(path, rows_of(1024, budget, engine)));
    std::vector<std::byte> row(1024);
    for (const Array& array : arrays) array.read(5, 1, row);
    arrays.clear();
    EXPECT_EQ(budget.in_use(), 0u);
  }
}

// The first array gets as much as if it were alone. All together leave room for results.
TEST_F(SharedBudget, BuffersOfManyArraysLeaveRoomForResults) {
  const std::string path = sparse(512_MiB);
  const Budget budget(64_MiB);
  std::vector<Array> arrays;
  for (int i = 0; i < 20; ++i) arrays.push_back(Array::open(path, rows_of(1024, budget)));
  EXPECT_GE(budget.left(), 20_MiB);
}

TEST_F(SharedBudget, AHintToRaiseTheBudgetWorksTheFirstTime) {
  const std::string path = sparse(512_MiB);
  for (const EngineKind engine : {EngineKind::kAuto, EngineKind::kRead, EngineKind::kAdvise}) {
    for (const std::uint64_t limit : {1_MiB, 2_MiB, 5_MiB, 16_MiB, 33_MiB}) {
      const auto open_until_refused = [&](const Budget& budget, std::size_t most,
                                          std::vector<Array>& arrays) {
        return error_of([&] {
          while (arrays.size() < most) {
            arrays.push_back(Array::open(path, rows_of(1024, budget, engine)));
          }
        });
      };
      std::vector<Array> arrays;
      const Error error = open_until_refused(Budget(limit), 1000, arrays);
      ASSERT_EQ(error.kind(), ErrorKind::kBudget) << error.what();
      const std::size_t wanted = arrays.size() + 1;
      const std::uint64_t advised = number_in(error, "MiB");
      ASSERT_GT(advised * 1_MiB, limit) << error.what();
      arrays.clear();
      open_until_refused(Budget(advised * 1_MiB), wanted, arrays);
      EXPECT_EQ(arrays.size(), wanted)
          << engine_name(engine) << " " << limit << ": " << error.what();
    }
  }
}

TEST_F(SharedBudget, AHintForSmallerChunksWorksTheFirstTime) {
  std::uint64_t refused = 0;
  for (const std::uint64_t file : {3_MiB, 512_MiB}) {
    const std::string path = sparse(file);
    for (const std::int64_t row : {8, 100, 4096, 300'000}) {
      for (const std::uint64_t limit : {1_MiB, 4_MiB, 7_MiB, 64_MiB}) {
        for (const bool is_shuffled : {false, true}) {
          for (const double part : {0.3, 0.6, 0.9, 1.5}) {
            if (row * 4 > static_cast<std::int64_t>(limit)) continue;
            const auto rows = static_cast<std::uint64_t>(part * static_cast<double>(limit)) /
                              static_cast<std::uint64_t>(row);
            if (rows == 0 || file % static_cast<std::uint64_t>(row) != 0) continue;
            const Array array = Array::open(path, rows_of(row, limit));
            const Order order = is_shuffled ? shuffled(1) : sequential();
            const Error error = error_of([&] { array.chunks(rows, order); });
            if (error.kind() != ErrorKind::kBudget) continue;
            ++refused;
            const std::uint64_t advised = number_in(error, "rows");
            EXPECT_LT(advised, rows) << error.what();
            if (advised == 0) continue;
            EXPECT_NO_THROW(array.chunks(advised, order)) << error.what();
          }
        }
      }
    }
  }
  EXPECT_GT(refused, 20u);
}

// Four threads read results that do not fit the budget together, as dask does.
TEST_F(SharedBudget, ConcurrentReadsWaitForOneAnother) {
  Watchdog watchdog;
  watchdog.enter("concurrent reads wait for one another");
  constexpr std::uint64_t kColumns = 256, kRows = 40'000, kBlock = 6'000;  // of 1 KiB each
  const std::string path = counting_file(folder_, "numbers", kRows * kColumns);
  const Array array = Array::open(path, counted(kColumns, 16_MiB));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      Numbers block(kBlock * kColumns);
      for (std::uint64_t i = 0; i < 6; ++i) {
        const std::uint64_t first = (thread * 9'000 + i * 700) % (kRows - kBlock);
        const Reservation room =
            Internals::of(array).room_for_read(kBlock * kColumns * 4, "results");
        array.read(first, kBlock, std::span(block));
        wrong +=
            block.front() == first * kColumns && block.back() == (first + kBlock) * kColumns - 1
                ? 0
                : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(error_of([&] { Internals::of(array).room_for_read(16_MiB, "results"); }).kind(),
            ErrorKind::kBudget);
}

TEST_F(SharedBudget, LargeGathersDoNotNeedTheirLargePlans) {
  constexpr std::uint64_t kColumns = 8, kRows = 200'000;
  const std::string path = counting_file(folder_, "numbers", kRows * kColumns);
  const Budget budget(4_MiB);
  const Array array = Array::open(path, counted(kColumns, budget));
  std::vector<std::uint64_t> rows;
  for (std::uint64_t i = 0; i < 50'000; ++i) rows.push_back(i * 7919 % kRows);
  EXPECT_EQ(gathered(array, rows), rows_of_counting(rows, kColumns));
  const Reservation rest = budget.reserve(budget.left(), "the rest");
  EXPECT_EQ(gathered(array, rows), rows_of_counting(rows, kColumns));
}

}  // namespace
}  // namespace evenkeel
