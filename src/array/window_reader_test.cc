// labels: threads reads
#include "array/window_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "array/internal.h"
#include "engine/recorded_reads.h"
#include "tests/counting_file.h"
#include "tests/watchdog.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kWide = 162;  // numbers in a row: 648 bytes, not a multiple of disk blocks

class WindowReaderTest : public testing::TestWithParam<EngineKind> {
 protected:
  // Expects every row once, in the order, with its own number and bytes.
  static void expect_epoch(const Array& array, std::uint64_t chunk_rows, const Order& order) {
    const Sequence sequence(order, array.rows());
    std::uint64_t seen = 0;
    for (const Chunk& chunk : array.chunks(chunk_rows, order)) {
      const auto rows = chunk.rows<std::uint32_t>();
      ASSERT_EQ(chunk.position(), seen);
      ASSERT_TRUE(follows(chunk, sequence)) << order.describe();
      seen += chunk.size();
      for (std::size_t i = 0; i < chunk.size(); ++i) {
        ASSERT_EQ(rows[i][0], chunk.index(i) * kWide) << order.describe();
        ASSERT_EQ(rows[i][kWide - 1], chunk.index(i) * kWide + kWide - 1) << order.describe();
      }
    }
    EXPECT_EQ(seen, sequence.size());
  }
  TempFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Engines, WindowReaderTest, testing::ValuesIn(kAllEngines),
                         [](const auto& tested) { return std::string(engine_name(tested.param)); });

TEST_P(WindowReaderTest, GivesTheRowsOfTheOrder) {
  const std::string path = counting_file(folder_, "rows", 5'003 * kWide);
  const Array array = Array::open(path, counted(kWide, 3_MiB, GetParam()));
  for (const BlockOptions& blocks : {BlockOptions{10, 64, 4}, BlockOptions{37, 16, 12},
                                     BlockOptions{1, 512, 4}, BlockOptions{600, 1, 8}}) {
    expect_epoch(array, 128, block_shuffled(1, 2, blocks));
    expect_epoch(array, 77, block_shuffled(1, 3, blocks).for_rank(1, 4));
  }
}

TEST_P(WindowReaderTest, BlocksMayLieInSeveralFiles) {
  std::vector<std::string> paths;
  std::uint64_t first = 0;
  for (const std::uint64_t rows : {700, 1, 5, 1200, 90}) {
    paths.push_back(
        counting_file(folder_, "part" + std::to_string(first), rows * kWide, first * kWide));
    first += rows;
  }
  const Array array = Array::open(paths, counted(kWide, 2_MiB, GetParam()));
  expect_epoch(array, 50, block_shuffled(7, 0, {40, 10, 2}));
  expect_epoch(array, 50, block_shuffled(7, 0, {150, 3, 2}).for_rank(1, 2));
}

TEST_P(WindowReaderTest, OtherByteOrdersAndFortranOrderAreTheSameRows) {
  const std::uint64_t rows = 1500, columns = 24;
  Numbers big(rows * columns), fortran(rows * columns);
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t column = 0; column < columns; ++column) {
      const auto number = static_cast<std::uint32_t>(row * columns + column);
      big[row * columns + column] = __builtin_bswap32(number);
      fortran[column * rows + row] = number;
    }
  }
  const auto bytes = [](const Numbers& numbers) {
    return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * 4);
  };
  ArrayOptions options = counted(columns, 1_MiB, GetParam());
  options.big_endian = true;
  std::string header = "\x93NUMPY\x01" + std::string(1, '\0') + "\x76" + std::string(1, '\0') +
                       "{'descr': '<u4', 'fortran_order': True, 'shape': (1500, 24)}";
  header.resize(127, ' ');
  const Array arrays[] = {Array::open(folder_.write("big", bytes(big)), options),
                          Array::open(folder_.write("fortran.npy", header + "\n" + bytes(fortran)),
                                      {.budget = 1_MiB, .engine = GetParam()})};
  for (const Array& array : arrays) {
    std::uint64_t seen = 0;
    for (const Chunk& chunk : array.chunks(64, block_shuffled(3, 0, {20, 16, 4}))) {
      for (std::size_t i = 0; i < chunk.size(); ++i, ++seen) {
        for (std::uint64_t column = 0; column < columns; ++column) {
          ASSERT_EQ(chunk.rows<std::uint32_t>()[i][column], chunk.index(i) * columns + column);
        }
      }
    }
    EXPECT_EQ(seen, rows);
  }
}

class BlockChunks : public WindowReaderTest {};

TEST_F(BlockChunks, MemoryIsReservedAndGivenBack) {
  const Budget budget(8_MiB);
  const Array array = Array::open(counting_file(folder_, "rows", 40'000 * kWide),
                                  counted(kWide, budget, EngineKind::kDirect));
  const std::uint64_t before = budget.in_use();
  const Order order = block_shuffled(1, 0, {40, 64, 4});
  {
    const Chunks chunks = array.chunks(256, order);
    const std::uint64_t windows = 2 * order.blocks.window_rows() * kWide * 4;
    EXPECT_GE(budget.in_use() - before, windows);
    EXPECT_LE(budget.in_use() - before, windows + 4 * 256 * kWide * 4 + 1_MiB);
  }
  EXPECT_EQ(budget.in_use(), before);
}

TEST_F(BlockChunks, LargeBlocksAreReadIntoPages) {
  RecordedReads reads;
  const Array array = Array::open(counting_file(folder_, "rows", 20'000 * kWide),
                                  counted(kWide, 8_MiB, EngineKind::kDirect));
  const std::uint64_t alignment = Internals::of(array).engine()->limits().alignment;
  if (alignment >= sys::page_size()) GTEST_SKIP() << "reads are whole pages here";
  // Blocks of 64,800 bytes are aligned to disk blocks, those of 68,040 bytes to pages.
  for (const std::uint64_t rows : {100, 105}) {
    expect_epoch(array, 128, block_shuffled(1, 0, {rows, 16, 4}));
    const std::vector<ReadOp> made = reads.take();
    EXPECT_GE(made.size(), 150u);
    const auto at_pages = static_cast<std::size_t>(std::ranges::count_if(made, begins_at_page));
    if (rows == 105) {
      // Neighbours that share a disk block are read together, into memory of the engine.
      EXPECT_GE(at_pages, made.size() * 9 / 10);
    } else {
      EXPECT_LT(at_pages, made.size() / 2);
    }
  }
}

TEST_F(BlockChunks, AWindowThatDoesNotFitIsRefusedWithAHintThatWorks) {
  const Array array = Array::open(counting_file(folder_, "rows", 40'000 * kWide),
                                  counted(kWide, 8_MiB, EngineKind::kDirect));
  const Error error = error_of([&] { array.chunks(64, block_shuffled(1, 0, {40, 500, 4})); });
  EXPECT_EQ(error.kind(), ErrorKind::kBudget);
  EXPECT_THAT(error.what(), HasSubstr("two windows of 20,000 rows of 648 bytes do not fit"));
  EXPECT_THAT(error.what(), HasSubstr("8 MiB"));
  const std::string& hint = error.hint_text();
  ASSERT_THAT(hint, HasSubstr("at most "));
  const std::uint64_t fitting = std::stoull(hint.substr(hint.find("at most ") + 8));
  EXPECT_GT(fitting, 50u);
  EXPECT_EQ(array.chunks(64, block_shuffled(1, 0, {40, fitting, 4})).begin()->size(), 64u);
  // The windows fit, but no chunk beside them.
  const Error beside = error_of([&] {
    array.chunks(4000, block_shuffled(1, 0, {40, fitting, 4}));
  });
  EXPECT_EQ(beside.kind(), ErrorKind::kBudget);
  EXPECT_THAT(beside.what(), HasSubstr("and a chunk of 4,000 rows"));
}

TEST_F(BlockChunks, AWindowSmallerThanAChunkIsRefused) {
  const Array array = Array::open(counting_file(folder_, "rows", 4'000 * kWide),
                                  counted(kWide, 2_MiB, EngineKind::kRead));
  const Error error = error_of([&] {
    array.chunks(600, block_shuffled(1, 0, {100, 10, 4}).for_rank(0, 2));
  });
  EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
  EXPECT_THAT(error.what(), HasSubstr("500 for each of 2 ranks"));
  EXPECT_THAT(error.what(), HasSubstr("smaller than a chunk of 600 rows"));
}

TEST_F(BlockChunks, ClosingAndSeekingInTheMiddleEndWaits) {
  const Array array = Array::open(counting_file(folder_, "rows", 20'000 * kWide),
                                  counted(kWide, 6_MiB, EngineKind::kDirect));
  Watchdog watchdog;
  watchdog.enter("seeks in the order blocks");
  Chunks chunks = array.chunks(100, block_shuffled(1, 0, {40, 50, 4}));
  const Sequence sequence(block_shuffled(1, 0, {40, 50, 4}), array.rows());
  for (std::uint64_t i = 0; i < 40; ++i) {
    const std::uint64_t number = i * 37 % 200;
    chunks.seek(number);
    if (i % 3 == 0) continue;  // a seek right after another
    const auto at = chunks.begin();
    ASSERT_EQ(at->position(), number * 100);
    ASSERT_EQ(at->index(7), sequence[number * 100 + 7]);
  }
  EXPECT_TRUE(Internals::of(chunks).close());
  EXPECT_EQ(error_of([&] { chunks.begin(); }).kind(), ErrorKind::kClosed);
}

TEST_F(BlockChunks, AFileThatIsCutMeanwhileIsAnErrorAndStaysOne) {
  const std::string path = counting_file(folder_, "rows", 40'000 * kWide);
  const Array array = Array::open(path, counted(kWide, 6_MiB, EngineKind::kDirect));
  Chunks chunks = array.chunks(100, block_shuffled(1, 0, {40, 50, 4}));
  const Error error = error_of([&] {
    for (const Chunk& chunk : chunks) {
      if (chunk.position() == 0) {
        ASSERT_EQ(::truncate(path.c_str(), 1000), 0);
      }
    }
  });
  EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
  EXPECT_EQ(error_of([&] { chunks.begin(); }).kind(), ErrorKind::kFormat);
}

}  // namespace
}  // namespace evenkeel
