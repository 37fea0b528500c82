// labels: threads reads
#include "array/row_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "evenkeel/error.h"
#include "evenkeel/tokens.h"
#include "format/test_files.h"
#include "tests/counting_file.h"
#include "tests/forked.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

// Files that were just written are in the page cache, and bytes from there are not cached. So these
// tests use the engine that bypasses the page cache.
class RowCacheTest : public testing::Test {
 protected:
  ArrayOptions options(std::int64_t columns, const Budget& budget,
                       std::optional<std::uint64_t> cache = 4_MiB) const {
    ArrayOptions options = counted(columns, budget, EngineKind::kDirect);
    options.cache = cache;
    return options;
  }
  // Reads the rows of a hot set in random order, often enough to fill the cache with them.
  static bool all_right(const Array& array, std::uint64_t columns, std::uint64_t rows, int rounds) {
    std::vector<std::uint64_t> wanted(rows);
    std::iota(wanted.begin(), wanted.end(), 7);
    std::mt19937_64 random(3);
    for (int round = 0; round < rounds; ++round) {
      std::ranges::shuffle(wanted, random);
      if (gathered(array, wanted) != rows_of_counting(wanted, columns)) return false;
    }
    return true;
  }
  TempFolder folder_;
};

TEST_F(RowCacheTest, RowsThatAreReadAgainComeFromMemory) {
  // Rows of 1 KiB, 40 bytes and 100 KB: a block per row, blocks of the file, several blocks per
  // row.
  for (const std::int64_t columns : {256, 10, 25'000}) {
    const auto rows = static_cast<std::uint64_t>(2'000'000 / columns);
    const auto name = counting_file(folder_, "numbers", rows * static_cast<std::uint64_t>(columns));
    const Budget budget(16_MiB);
    const Array array = Array::open(name, options(columns, budget));
    const std::uint64_t hot = std::min<std::uint64_t>(rows / 4, 500);
    ASSERT_TRUE(all_right(array, static_cast<std::uint64_t>(columns), hot, 12));
    const ArrayStats before = array.stats();
    EXPECT_GT(before.cache_hits, 0u) << columns;
    EXPECT_GT(before.cache_bytes, hot * static_cast<std::uint64_t>(columns) * 4) << columns;
    EXPECT_EQ(budget.cached(), before.cache_bytes);
    ASSERT_TRUE(all_right(array, static_cast<std::uint64_t>(columns), hot, 1));
    const ArrayStats after = array.stats();
    EXPECT_EQ(after.requests, before.requests) << columns;
    EXPECT_EQ(after.bytes_from_disk, before.bytes_from_disk) << columns;
    EXPECT_EQ(after.bytes_from_cache - before.bytes_from_cache,
              hot * static_cast<std::uint64_t>(columns) * 4);
    EXPECT_EQ(after.cache_misses, before.cache_misses);
    EXPECT_EQ(after.in_flight, 0u);
  }
}

TEST_F(RowCacheTest, CropsAndManyStartsAndChunksUseItToo) {
  const auto name = counting_file(folder_, "numbers", 1'000'000);
  const Budget budget(16_MiB);
  const Array array = Array::open(name, options(1, budget));
  std::mt19937_64 random(5);
  const auto crops_are_right = [&](std::size_t count) {
    std::vector<std::uint64_t> starts(count), rows;
    for (std::uint64_t& start : starts) {
      start = random() % 20'000;
      for (std::uint64_t i = 0; i < 501; ++i) rows.push_back(start + i);
    }
    Numbers out(count * 501);
    array.crops(starts, 501, std::span(out));
    return out == rows_of_counting(rows, 1);
  };
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(crops_are_right(64));
  const std::uint64_t small = array.stats().cache_hits;
  EXPECT_GT(small, 0u);
  ASSERT_TRUE(crops_are_right(1500));  // looked up in the order of the file
  const std::uint64_t large = array.stats().cache_hits;
  EXPECT_GT(large, small + 1000);
  for (const Chunk& chunk : array.chunks(1000, shuffled(1))) {
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      ASSERT_EQ(chunk.rows<std::uint32_t>()[i][0], chunk.index(i));
    }
    if (chunk.position() > 20'000) break;
  }
  EXPECT_GT(array.stats().cache_hits, large);
}

TEST_F(RowCacheTest, AScanAndAnExactShuffleTakeNoMemory) {
  const auto name = counting_file(folder_, "numbers", 256 * 8000);
  const Budget budget(4_MiB);
  ArrayOptions opened = counted(256, budget, EngineKind::kDirect);
  opened.cache = 1_MiB;
  const Array array = Array::open(name, opened);
  for (const Order& order : {shuffled(1), sequential()}) {
    for (const Chunk& chunk : array.chunks(100, order)) ASSERT_GT(chunk.size(), 0u);
    EXPECT_EQ(array.stats().cache_bytes, 0u);
    EXPECT_EQ(array.stats().cache_misses, 0u);
  }
  EXPECT_EQ(budget.cached(), 0u);
}

TEST_F(RowCacheTest, SwappedBytesAndSeveralFilesAreRight) {
  std::vector<std::string> names;
  for (std::uint64_t i = 0; i < 12; ++i) {  // more files than are kept open
    names.push_back(counting_file(folder_, "part" + std::to_string(i), 50'000, i * 50'000));
  }
  const Budget budget(16_MiB);
  ArrayOptions opened = options(100, budget);
  const Array plain = Array::open(names, opened);
  opened.big_endian = true;
  const Array swapped = Array::open(names, opened);
  std::mt19937_64 random(9);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::uint64_t> rows(300);
    for (std::uint64_t& row : rows) row = random() % 10 * 500 + random() % 20;
    Numbers expected = rows_of_counting(rows, 100);
    ASSERT_EQ(gathered(plain, rows), expected);
    for (std::uint32_t& number : expected) number = __builtin_bswap32(number);
    ASSERT_EQ(gathered(swapped, rows), expected);
  }
  EXPECT_GT(plain.stats().cache_hits, 1000u);
  EXPECT_GT(swapped.stats().cache_hits, 1000u);
}

TEST_F(RowCacheTest, AFileThatChangesIsAnErrorAlsoIfAllIsCached) {
  const auto name = counting_file(folder_, "numbers", 256 * 2000);
  const Budget budget(16_MiB);
  const Array array = Array::open(name, options(256, budget));
  ASSERT_TRUE(all_right(array, 256, 200, 12));
  const std::uint64_t requests = array.stats().requests;
  ASSERT_TRUE(all_right(array, 256, 200, 1));
  ASSERT_EQ(array.stats().requests, requests);
  std::fstream(name, std::ios::in | std::ios::out | std::ios::binary) << "other";
  std::filesystem::last_write_time(
      name, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(2));
  EXPECT_THROW(all_right(array, 256, 200, 1), Error);
  std::filesystem::resize_file(name, 10);
  EXPECT_THROW(all_right(array, 256, 200, 1), Error);
}

TEST_F(RowCacheTest, GivesWayToBuffers) {
  const auto name = counting_file(folder_, "numbers", 256 * 40'000);
  const Budget budget(16_MiB);
  const Array array = Array::open(name, options(256, budget, 8_MiB));
  ASSERT_TRUE(all_right(array, 256, 4000, 6));
  EXPECT_GT(budget.cached(), 4_MiB);
  const std::uint64_t left = budget.left();
  const Reservation most = budget.reserve(left - 1_MiB, "most");
  EXPECT_LE(budget.in_use(), 16_MiB);
  EXPECT_LE(budget.cached(), 1_MiB);
  ASSERT_TRUE(all_right(array, 256, 4000, 2));
}

TEST_F(RowCacheTest, AChildStartsWithAnEmptyOne) {
  const auto name = counting_file(folder_, "numbers", 256 * 2000);
  const Budget budget(16_MiB);
  const Array array = Array::open(name, options(256, budget));
  ASSERT_TRUE(all_right(array, 256, 200, 12));
  ASSERT_GT(array.stats().cache_bytes, 0u);
  EXPECT_EQ(in_child([&]() -> std::string {
              if (array.stats().cache_bytes != 0 || budget.cached() != 0) return "inherited";
              if (!all_right(array, 256, 200, 12)) return "wrong";
              return array.stats().cache_bytes > 0 && budget.cached() > 0 ? "own" : "none";
            }),
            "own");
  ASSERT_TRUE(all_right(array, 256, 200, 2));
}

TEST_F(RowCacheTest, ManyThreadsGetRightRowsAndTheSameCounts) {
  const auto name = counting_file(folder_, "numbers", 256 * 8000);
  const Budget budget(32_MiB);
  const Array array = Array::open(name, options(256, budget));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 60; ++i) {
        std::vector<std::uint64_t> rows(100);
        for (auto& row : rows) row = random() % (random() % 10 < 9 ? 400 : 8000);
        if (gathered(array, rows) != rows_of_counting(rows, 256)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  const ArrayStats stats = array.stats();
  EXPECT_GT(stats.cache_hits, 1000u);
  EXPECT_EQ(stats.bytes_from_cache, stats.cache_hits * 1024);
  EXPECT_EQ(stats.in_flight, 0u);
}

TEST_F(RowCacheTest, ALoaderUsesTheTokensCache) {
  std::vector<std::uint16_t> numbers(600'000);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto name = folder_.write(
      "train.bin", {reinterpret_cast<const char*>(numbers.data()), numbers.size() * 2});
  const Tokens tokens =
      Tokens::open(name, {.budget = 32_MiB, .engine = EngineKind::kDirect, .cache = 8_MiB});
  TokenLoader loader(tokens, {.batch_size = 16, .block_size = 256});
  for (int step = 0; step < 600; ++step) {
    const Batch& batch = *loader.next();
    for (std::size_t row = 0; row < 16; ++row) {
      const auto x = batch.x<std::int64_t>()[row], y = batch.y<std::int64_t>()[row];
      ASSERT_EQ((x[0] + 256) % 65536, y[255]);
      ASSERT_EQ((x[0] + 255) % 65536, x[255]);
    }
  }
  EXPECT_GT(loader.stats().cache_hits, 1000u);
  EXPECT_GT(loader.stats().wait_ns, 0u);
}

TEST(RowCacheLayouts, SmallRowsOfVeryManyFilesAreNotCached) {
  Layout layout;
  layout.dtype = {DTypeKind::kUint, 4};
  layout.row_bytes = 4;
  layout.rows = 1;
  layout.segments.resize(1 << 20);
  EXPECT_TRUE(RowCache::takes(layout));
  layout.segments.emplace_back();  // its blocks would have the numbers of those of the first file
  EXPECT_FALSE(RowCache::takes(layout));
  layout.row_bytes = 256;  // its blocks are numbered by row
  EXPECT_TRUE(RowCache::takes(layout));
}

TEST_F(RowCacheTest, OneThatCannotBeIsRefusedWithWhatWouldWork) {
  const auto name = counting_file(folder_, "numbers", 256 * 2000);
  const auto refusal = [&](const ArrayOptions& opened) -> std::string {
    try {
      Array::open(name, opened);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string message = refusal(options(256, Budget(2_MiB), 64_MiB));
  EXPECT_THAT(message, HasSubstr("a cache of 67,108,864 bytes does not fit"));
  EXPECT_THAT(message, HasSubstr("are left of a budget of 2,097,152"));
  EXPECT_THAT(message, HasSubstr("use a cache of at most "));
  EXPECT_THAT(refusal(options(512'000, Budget(64_MiB))), HasSubstr("these rows cannot be cached"));
  EXPECT_EQ(refusal(options(256, Budget(2_MiB), 0)), "");
  EXPECT_EQ(Array::open(name, options(256, Budget(2_MiB), 0)).stats().cache_bytes, 0u);
}

TEST_F(RowCacheTest, AnArrayWithoutRowsNeedsNone) {
  const auto path = folder_.write("empty.npy", npy_file(npy_header("'<u4'", "(0, 10)"), 0));
  const Array array = Array::open(path, {.budget = 2_MiB, .cache = 64_KiB});
  EXPECT_EQ(array.rows(), 0u);
  EXPECT_EQ(array.stats().cache_bytes, 0u);
}

}  // namespace
}  // namespace evenkeel
