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
