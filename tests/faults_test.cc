// Every fault at every call of a small piece of work: it returns right data or a clear error and
// leaks nothing, and the array works afterwards.
#include <gtest/gtest.h>

#include <optional>

#include "array/internal.h"
#include "base/fd.h"
#include "tests/counting_file.h"
#include "tests/fault_sweep.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kFaultColumns = 8;

struct Way {
  const char* name;
  EngineKind engine;
  bool rings = true;
  std::uint64_t budget = 1_MiB;
  std::uint64_t rows = 2'000;   // of each of two files; each of 32 bytes
  bool leaves_mapping = false;  // a large result makes the array end its mapping
};

class Faults : public testing::TestWithParam<Way> {
 protected:
  Faults() : folder_(disk_folder().value_or(std::filesystem::temp_directory_path())) {
    for (const std::uint64_t file : {0, 1}) {
      const Numbers numbers = counting(file * rows_ * kFaultColumns, rows_ * kFaultColumns);
      paths_.push_back(folder_.write_through(
          "part" + std::to_string(file),
          {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]}));
    }
  }

  // The first file is cached, the second is not.
  void half_cold() const {
    for (const std::string& path : paths_) {
      const Fd fd = open_readable(path);
      if (path == paths_[1]) {
        ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
      } else {
        ::readahead(fd.get(), 0, rows_ * kFaultColumns * 4);
      }
    }
  }

  void gather(const Array& array) const {
    const std::vector<std::uint64_t> rows{7, rows_ / 3, rows_ - 1, rows_, 2 * rows_ - 1};
    ASSERT_EQ(gathered(array, rows), rows_of_counting(rows, kFaultColumns));
  }
  // Three chunks around the position where the second file begins.
  void scan(const Array& array, std::uint64_t rows_each, const Order& order) const {
    Chunks chunks = array.chunks(rows_each, order);
    chunks.seek(rows_ / rows_each - 1);
    int left = 3;
    for (const Chunk& chunk : chunks) {
      ASSERT_TRUE(counts_on(chunk));
      if (--left == 0) break;
    }
    ASSERT_EQ(left, 0);
  }
  // A range that has failed continues after seek.
  void scan_again(FaultCase& fault, const Array& array) const {
    std::optional<Chunks> chunks;
    if (!fault.attempt([&] { chunks.emplace(array.chunks(300)); })) return;
    const auto take = [&] {
      chunks->seek(rows_ / 300 - 1);
      int left = 3;
      for (const Chunk& chunk : *chunks) {
        ASSERT_TRUE(counts_on(chunk));
        if (--left == 0) break;
      }
    };
    fault.attempt(take);
    fault.insist(take);
  }

  // A result that does not fit in addition to the mapping.
  static void leave_mapping(const Array& array) {
    const std::uint64_t bytes = array.budget().limit() * 9 / 16;
    ASSERT_EQ(Internals::of(array).room_for_read(bytes, "results").bytes(), bytes);
    ASSERT_NE(array.engine().chosen, EngineKind::kMap);
  }

  const std::uint64_t rows_ = GetParam().rows;
  const TempFolder folder_;
  std::vector<std::string> paths_;
};

TEST_P(Faults, AtEveryCall) {
  const Way way = GetParam();
  FaultSweep sweep(way.name);
  sweep.run(
      [&](FaultCase& fault) {
        const Budget budget(way.budget);
        std::optional<Array> array;
        fault.attempt([&] {
          array.emplace(Array::open(paths_, counted(kFaultColumns, budget, way.engine)));
        });
        if (array) {
          fault.attempt([&] { gather(*array); });
          fault.attempt([&] { scan(*array, 8, shuffled(3)); });
          scan_again(fault, *array);
          if (way.leaves_mapping) {
            fault.attempt([&] { leave_mapping(*array); });
            fault.attempt([&] { gather(*array); });
            fault.insist([&] { leave_mapping(*array); });
          }
          fault.insist([&] { gather(*array); });
          fault.insist([&] { scan(*array, 300, sequential()); });
          array->close();
        }
        EXPECT_EQ(budget.in_use(), 0u);
      },
      {.rings = way.rings, .whole_blocks = !way.rings, .before_each = [this] { half_cold(); }});
}

// Reads the same rows several times: while the cache is filled, and when all rows come from it.
class FaultsOfACache : public Faults {};

TEST_P(FaultsOfACache, AtEveryCall) {
  const Way way = GetParam();
  std::vector<std::uint64_t> rows;
  for (std::uint64_t i = 0; i < 100; ++i) rows.push_back(i * 37 % (2 * rows_));
  const auto gather_often = [&](const Array& array) {
    for (int i = 0; i < 4; ++i) {
      ASSERT_EQ(gathered(array, rows), rows_of_counting(rows, kFaultColumns));
    }
  };
  std::uint64_t hits = 0;
  FaultSweep sweep(way.name);
  sweep.run(
      [&](FaultCase& fault) {
        const Budget budget(way.budget);
        ArrayOptions options = counted(kFaultColumns, budget, way.engine);
        options.cache = 1_MiB;
        std::optional<Array> array;
        fault.attempt([&] { array.emplace(Array::open(paths_, options)); });
        if (array) {
          fault.attempt([&] { gather_often(*array); });
          fault.insist([&] { gather_often(*array); });
          hits += array->stats().cache_hits;  // none if the cache got no memory
          array->close();
        }
        EXPECT_EQ(budget.in_use(), 0u);
      },
      {.rings = way.rings, .whole_blocks = !way.rings, .before_each = [this] { half_cold(); }});
  EXPECT_GT(hits, 0u);
}

INSTANTIATE_TEST_SUITE_P(Engines, FaultsOfACache,
                         testing::Values(Way{"direct_with_cache", EngineKind::kDirect, true, 4_MiB},
                                         Way{"read_with_cache", EngineKind::kRead, true, 4_MiB}),
                         [](const auto& tested) { return std::string(tested.param.name); });

INSTANTIATE_TEST_SUITE_P(
    Engines, Faults,
    testing::Values(Way{"map", EngineKind::kMap}, Way{"remap", EngineKind::kRemap},
                    Way{"advise", EngineKind::kAdvise}, Way{"read", EngineKind::kRead},
                    Way{"fill", EngineKind::kFill}, Way{"direct", EngineKind::kDirect},
                    Way{"direct_threads", EngineKind::kDirect, false},
                    Way{"auto", EngineKind::kAuto, true, 1_MiB, 20'000},
                    Way{"auto_that_fits", EngineKind::kAuto, true, 8_MiB},
                    Way{"auto_that_leaves_its_mapping", EngineKind::kAuto, true, 8_MiB, 55'000,
                        true}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace evenkeel
