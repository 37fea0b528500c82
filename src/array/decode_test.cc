// labels: threads
// Arrays in compressed chunks: several threads at once must read the rows that were written.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "array/internal.h"
#include "base/fault_hook.h"
#include "engine/chunk_store.h"
#include "engine/codecs.h"
#include "format/chunk_grid.h"
#include "format/test_files.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kGridRows = 300, kGridColumns = 10;

// Element i of the array is i. Chunks have 16 rows and 4 columns, so they divide rows.
class DecodeEngineTest : public FileTest {
 protected:
  DecodeEngineTest() {
    grid_.folder = path("");
    grid_.folder.pop_back();
    write(".zarray", "{}");
    grid_.separator = ".";
    grid_.shape = {kGridRows, kGridColumns};
    grid_.chunk = {16, 4};
    grid_.fill = std::string(4, '\7');
    for (std::uint64_t i = 0; i * 16 < kGridRows; ++i) {
      for (std::uint64_t j = 0; j * 4 < kGridColumns; ++j) {
        std::vector<std::uint32_t> chunk;
        for (std::uint64_t row = 16 * i; row < 16 * i + 16; ++row) {
          for (std::uint64_t column = 4 * j; column < 4 * j + 4; ++column) {
            const bool inside = row < kGridRows && column < kGridColumns;
            chunk.push_back(inside ? static_cast<std::uint32_t>(row * kGridColumns + column) : 99);
          }
        }
        write(std::to_string(i) + "." + std::to_string(j),
              {reinterpret_cast<const char*>(chunk.data()), 4 * chunk.size()});
      }
    }
  }

  Array open() const {
    return Internals::make(layout_of_chunks("test", grid_, DType::parse("uint32"), false),
                           {.budget = Budget(4_MiB), .cache = 0});
  }
  static std::vector<std::uint32_t> rows_of(const Array& array,
                                            const std::vector<std::uint64_t>& rows) {
    std::vector<std::uint32_t> got(rows.size() * kGridColumns);
    array.gather(rows, std::as_writable_bytes(std::span(got)));
    return got;
  }

  ChunkGrid grid_;
};

TEST_F(DecodeEngineTest, ThreadsShareIt) {
  const Array array = open();
  EXPECT_EQ(array.engine().chosen, EngineKind::kDecode);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (unsigned seed = 0; seed < 3; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int turn = 0; turn < 20; ++turn) {
        std::vector<std::uint64_t> rows(50);
        for (std::uint64_t& row : rows) row = random() % kGridRows;
        const std::vector<std::uint32_t> got = rows_of(array, rows);
        for (std::size_t i = 0; i < got.size(); ++i) {
          wrong += got[i] != rows[i / kGridColumns] * kGridColumns + i % kGridColumns;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(DecodeEngineTest, MissingChunksAreTheFillValue) {
  std::filesystem::remove(path("2.1"));
  const std::vector<std::uint32_t> row = rows_of(open(), {40});
  for (std::uint32_t column = 0; column < kGridColumns; ++column) {
    EXPECT_EQ(row[column], column >= 4 && column < 8 ? 0x07070707 : 400 + column);
  }
}

TEST_F(DecodeEngineTest, AnArrayThatIsGoneIsNotTheFillValue) {
  const Array array = open();
  EXPECT_EQ(rows_of(array, {0})[0], 0U);
  std::filesystem::remove_all(grid_.folder);
  try {
    rows_of(array, {40});
    ADD_FAILURE() << "rows of a folder that was removed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ENOENT);
    EXPECT_NE(std::string(error.what()).find("the array is gone"), std::string::npos)
        << error.what();
  }
}

// Gives decoders no memory, or no threads.
class NoDecoders final : public sys::FaultHook {
 public:
  explicit NoDecoders(sys::Call without) : without_(without) { sys::fault_hook = this; }
  ~NoDecoders() { sys::fault_hook = nullptr; }
  NoDecoders(const NoDecoders&) = delete;
  NoDecoders& operator=(const NoDecoders&) = delete;
  sys::Fault on(sys::Call call) override { return {call == without_ ? ENOMEM : 0}; }

 private:
  const sys::Call without_;
};

TEST_F(DecodeEngineTest, WithoutMemoryForADecoderItSaysSoAndThenGoesOn) {
  const Array array = open();
  {
    const NoDecoders hook(sys::Call::kMmap);
    for (std::uint64_t turn = 0; turn < 60; ++turn) {  // more often than there are blocks in memory
      EXPECT_THROW(rows_of(array, {turn * 5}), Error);
    }
  }
  EXPECT_EQ(rows_of(array, {7, 150})[10], 1500U);
}

TEST_F(DecodeEngineTest, WithoutThreadsTheReaderDecodes) {
  const Array array = open();
  const NoDecoders hook(sys::Call::kThreadStart);
  EXPECT_EQ(rows_of(array, {7, 150})[10], 1500U);
}

// Many more blocks than the budget has slots for, so that whole blocks are decoded in place.
class DecodeInPlaceTest : public FileTest {
 protected:
  static constexpr std::uint64_t kRows = 4000, kColumns = 256, kBlock = 64;  // rows

  DecodeInPlaceTest() {
    grid_.folder = path("");
    grid_.folder.pop_back();
    write(".zarray", "{}");
    grid_.separator = ".";
    grid_.shape = {kRows, kColumns};
    grid_.chunk = {kBlock, kColumns};
    grid_.fill = std::string(4, '\7');
    std::vector<std::uint32_t> chunk(kBlock * kColumns);
    for (std::uint64_t first = 0; first < kRows; first += kBlock) {
      std::iota(chunk.begin(), chunk.end(), static_cast<std::uint32_t>(first * kColumns));
      write(std::to_string(first / kBlock) + ".0",
            {reinterpret_cast<const char*>(chunk.data()), 4 * chunk.size()});
    }
  }
  Array open() const {
    return Internals::make(layout_of_chunks("test", grid_, DType::parse("uint32"), false),
                           {.budget = Budget(2_MiB), .cache = 0});
  }
  // Whether these are the rows, with nothing written before and after them.
  static bool right(const Array& array, const std::vector<std::uint64_t>& rows) {
    constexpr std::uint32_t kOutside = 0xeeeeeeee;
    std::vector<std::uint32_t> got((rows.size() + 2) * kColumns, kOutside);
    const auto inner = std::span(got).subspan(kColumns, rows.size() * kColumns);
    array.gather(rows, std::as_writable_bytes(inner));
    for (std::size_t i = 0; i < inner.size(); ++i) {
      if (inner[i] != rows[i / kColumns] * kColumns + i % kColumns) return false;
    }
    const auto is_outside = [](std::uint32_t value) { return value == kOutside; };
    return std::ranges::all_of(std::span(got).first(kColumns), is_outside) &&
           std::ranges::all_of(std::span(got).last(kColumns), is_outside);
  }
  static void add(std::vector<std::uint64_t>& rows, std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t row = first; row < std::min(first + count, kRows); ++row) {
      rows.push_back(row);
    }
  }

  ChunkGrid grid_;
};

TEST_F(DecodeInPlaceTest, BlocksPartsOfBlocksAndTheLastBlock) {
  const Array array = open();
  std::vector<std::uint64_t> blocks((kRows + kBlock - 1) / kBlock);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
  std::vector<std::uint64_t> rows;
  for (const std::uint64_t block : blocks) add(rows, block * kBlock, kBlock);
  EXPECT_TRUE(right(array, rows));
  for (const std::uint64_t first : {0, 1, 63, 64, 100, 3900}) {
    for (const std::uint64_t count : {1, 63, 64, 65, 200}) {
      rows.clear();
      add(rows, first, count);
      EXPECT_TRUE(right(array, rows)) << first << ' ' << count;
      std::ranges::reverse(rows);
      EXPECT_TRUE(right(array, rows)) << first << ' ' << count;
    }
  }
}

TEST_F(DecodeInPlaceTest, OnlyBlocksThatAreWantedInPartAreKept) {
  const Array array = open();
  auto requests = [&, before = std::uint64_t{0}]() mutable {
    const std::uint64_t now = array.stats().requests;
    return now - std::exchange(before, now);
  };
  std::vector<std::uint64_t> whole, part;
  add(whole, 640, 64);
  add(part, 641, 63);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_TRUE(right(array, whole));
    EXPECT_EQ(requests(), 1u);
  }
  EXPECT_TRUE(right(array, part));
  EXPECT_EQ(requests(), 1u);
  EXPECT_TRUE(right(array, part) && right(array, whole));
  EXPECT_EQ(requests(), 0u);
}

TEST_F(DecodeInPlaceTest, AfterAnErrorOtherBlocksAreReadAndNothingIsWritten) {
  write("20.0", "short");
  std::filesystem::remove(path("21.0"));
  const Array array = open();
  std::vector<std::uint64_t> rows, right_rows;
  for (const std::uint64_t block : {30, 20, 40, 50, 1, 2, 3}) add(rows, block * kBlock, kBlock);
  add(right_rows, 30 * kBlock, 3 * kBlock);
  for (int turn = 0; turn < 5; ++turn) {
    auto got = std::make_unique<std::vector<std::uint32_t>>(rows.size() * kColumns);
    EXPECT_THROW(array.gather(rows, std::as_writable_bytes(std::span(*got))), Error);
    got.reset();  // AddressSanitizer reports a block that is still being decoded
    EXPECT_TRUE(right(array, right_rows));
  }
  std::vector<std::uint32_t> never_written(kBlock * kColumns);
  rows.clear();
  add(rows, 21 * kBlock, kBlock);
  array.gather(rows, std::as_writable_bytes(std::span(never_written)));
  EXPECT_EQ(std::ranges::count(never_written, 0x07070707u), kBlock * kColumns);
}

TEST_F(DecodeInPlaceTest, WithoutThreadsTheReaderDecodes) {
  const Array array = open();
  const NoDecoders hook(sys::Call::kThreadStart);
  std::vector<std::uint64_t> rows;
  add(rows, 100, 500);
  EXPECT_TRUE(right(array, rows));
}

// The cache aligns reads of small rows to 1 KiB, which does not divide these chunks. A read of the
// last row then reaches beyond the array.
TEST_F(FileTest, ChunksThatBlocksOfTheCacheDoNotDivide) {
  constexpr std::uint64_t kRows = 400'000, kChunk = 10'000;
  ChunkGrid grid;
  grid.folder = path("");
  grid.folder.pop_back();
  write(".zarray", "{}");
  grid.separator = ".";
  grid.shape = {kRows};
  grid.chunk = {kChunk};
  grid.fill = std::string(4, '\7');
  std::vector<std::uint32_t> chunk(kChunk);
  for (std::uint64_t first = 0; first < kRows; first += kChunk) {
    std::iota(chunk.begin(), chunk.end(), static_cast<std::uint32_t>(first));
    write(std::to_string(first / kChunk),
          {reinterpret_cast<const char*>(chunk.data()), 4 * kChunk});
  }
  write(std::to_string(kRows / kChunk), "a chunk of a longer array");
  const Array array = Internals::make(layout_of_chunks("test", grid, DType::parse("uint32"), false),
                                      {.budget = Budget(4_MiB), .cache = 1_MiB});
  std::mt19937 random(1);
  const auto right = [&](const std::vector<std::uint64_t>& rows) {
    std::vector<std::uint32_t> got(rows.size());
    array.gather(rows, std::as_writable_bytes(std::span(got)));
    return std::ranges::equal(got, rows);
  };
  for (int turn = 0; turn < 600; ++turn) {
    std::vector<std::uint64_t> rows(200);
    const std::uint64_t around = random() % 3000;  // the same rows again and again, for the cache
    for (std::uint64_t& row : rows) row = kRows - 2 * kChunk + around + random() % 900;
    if (turn % 50 == 0) {
      for (std::uint64_t row = kChunk; row < 2 * kChunk; ++row) rows.push_back(row);
    }
    ASSERT_TRUE(right(rows));
  }
  EXPECT_GT(array.stats().cache_hits, 0u);
  EXPECT_TRUE(right({kRows - 1}));
}

TEST(ShardIndexes, HoldsAnIndexOnce) {
  ShardIndexes indexes(2);
  const auto first = std::make_shared<const ShardIndex>(2);
  EXPECT_EQ(indexes.add("a", first), first);
  EXPECT_EQ(indexes.add("a", std::make_shared<const ShardIndex>(2)), first);
  indexes.add("b", std::make_shared<const ShardIndex>(2));
  EXPECT_EQ(indexes.find("a"), first);
  indexes.add("c", std::make_shared<const ShardIndex>(2));
  EXPECT_EQ(indexes.find("b"), nullptr);
}

TEST_F(DecodeEngineTest, ErrorsNameTheChunkAndItDoesNotGoOnWithIt) {
  write("2.1", "short");
  const Array array = open();
  for (int turn = 0; turn < 2; ++turn) {
    try {
      rows_of(array, {1, 40});
      ADD_FAILURE() << "a chunk of five bytes was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat);
      EXPECT_NE(std::string(error.what()).find("2.1: the chunk decodes to 5 bytes"),
                std::string::npos)
          << error.what();
    }
    EXPECT_EQ(rows_of(array, {47 + 1})[0], 480U);
  }
}

TEST_F(DecodeEngineTest, GridsThatMakeNoSenseAreRefused) {
  const auto refused = [&](const auto& change) {
    ChunkGrid grid = grid_;
    change(grid);
    EXPECT_THROW(layout_of_chunks("test", grid, DType::parse("uint32"), false), Error);
  };
  refused([](ChunkGrid& grid) { grid.chunk = {16}; });
  refused([](ChunkGrid& grid) { grid.chunk = {0, 4}; });
  refused([](ChunkGrid& grid) { grid.chunk = {UINT64_MAX, UINT64_MAX}; });
  refused([](ChunkGrid& grid) { grid.shape = {UINT64_MAX, 10}; });
  refused([](ChunkGrid& grid) { grid.shard = {20, 4}; });
  refused([](ChunkGrid& grid) { grid.shard = {16ULL << 30, 4}; });
  refused([](ChunkGrid& grid) { grid.order = {0, 0}; });
  refused([](ChunkGrid& grid) { grid.fill = "x"; });
}

TEST(Crc32c, KnownValues) {
  const auto of = [](std::string_view text) { return crc32c(std::as_bytes(std::span(text))); };
  EXPECT_EQ(of(""), 0U);
  EXPECT_EQ(of("123456789"), 0xe3069283U);
  EXPECT_EQ(of(std::string(32, '\0')), 0x8a9136aaU);
}

}  // namespace
}  // namespace evenkeel
