// labels: threads reads
#include "evenkeel/array.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "array/internal.h"
#include "format/test_files.h"
#include "tests/counting_file.h"
#include "tests/forked.h"

namespace evenkeel {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Rows64 = std::vector<std::uint64_t>;

class ArrayTest : public testing::Test {
 protected:
  std::string numbers(std::string_view name, std::uint64_t count, std::uint64_t first = 0) const {
    return counting_file(folder_, name, count, first);
  }
  Array open(std::uint64_t count, std::int64_t columns, const Budget& budget,
             EngineKind engine = EngineKind::kAuto) const {
    return Array::open(numbers("numbers", count), counted(columns, budget, engine));
  }
  static Rows64 some_rows(std::uint64_t rows, std::size_t count) {
    std::mt19937_64 random(3);
    Rows64 picks(count);
    for (auto& row : picks) row = random() % rows;
    return picks;
  }

  TempFolder folder_;
};

class EveryEngine : public ArrayTest, public testing::WithParamInterface<EngineKind> {};
INSTANTIATE_TEST_SUITE_P(Engines, EveryEngine, testing::ValuesIn(kAllEngines),
                         [](const auto& tested) { return std::string(engine_name(tested.param)); });

TEST_F(ArrayTest, AMissingFileIsNamed) {
  const Error error = error_of([&] { Array::open(folder_.path("none.npy")); });
  EXPECT_EQ(error.kind(), ErrorKind::kSystem);
  EXPECT_EQ(error.code(), ENOENT);
  EXPECT_THAT(error.what(), HasSubstr(folder_.path("none.npy")));
}

TEST_F(ArrayTest, NoFileIsRefused) {
  EXPECT_EQ(
      error_of([] {
        Array::open(Rows64().empty() ? std::vector<std::string>{} : std::vector<std::string>{""});
      }).kind(),
      ErrorKind::kInvalid);
}

TEST_F(ArrayTest, AFolderIsRefused) {
  EXPECT_NE(error_of([&] { Array::open(folder_.path(""), counted(1, 1_MiB)); }).kind(),
            ErrorKind::kInvalid);
}

TEST_F(ArrayTest, TheBudgetIsGivenBackWhenOpenFails) {
  const Budget budget(4_MiB);
  EXPECT_NE(error_of([&] { Array::open(folder_.path("none"), {.budget = budget}); }).kind(),
            ErrorKind::kInvalid);
  EXPECT_EQ(budget.in_use(), 0u);
}

TEST_F(ArrayTest, TellsWhatItIs) {
  const Array array = open(12, 3, 4_MiB);
  EXPECT_EQ(array.shape(), (Rows64{4, 3}));
  EXPECT_EQ(array.rows(), 4u);
  EXPECT_EQ(array.row_bytes(), 12u);
  EXPECT_EQ(array.bytes(), 48u);
  EXPECT_EQ(array.dtype(), DType::of<std::uint32_t>());
  EXPECT_EQ(array.format(), "raw");
  EXPECT_EQ(array.paths(), std::vector<std::string>{folder_.path("numbers")});
  EXPECT_EQ(array.budget().limit(), 4_MiB);
}

TEST_P(EveryEngine, ReportsWhatWasAskedAndWhatWasChosen) {
  const EngineReport report = open(1000, 10, 2_MiB, GetParam()).engine();
  EXPECT_EQ(report.asked, GetParam());
  EXPECT_NE(report.chosen, EngineKind::kAuto);
  EXPECT_FALSE(report.how.empty());
  EXPECT_FALSE(report.why.empty());
}

TEST_P(EveryEngine, WorksUnderTheSmallestBudget) {
  const Array array = open(1'000'000, 10, 1_MiB, GetParam());
  const Rows64 rows = some_rows(array.rows(), 3000);
  EXPECT_EQ(gathered(array, rows), rows_of_counting(rows, 10));
  EXPECT_LE(array.budget().peak(), 1_MiB);
}

std::uint64_t reads_counted(const ArrayStats& stats) {
  return stats.requests + stats.in_flight + stats.wait_ns + stats.bytes_from_disk +
         stats.bytes_from_page_cache + stats.bytes_from_mapping + stats.bytes_from_cache;
}

// It showed what its parent had read, and the requests that its parent had in flight at the fork
// were in flight in the child for ever.
TEST_P(EveryEngine, AChildOfForkCountsWhatItReadsItself) {
  const Array array = open(100'000, 10, 1_MiB, GetParam());
  Numbers out(10'000);
  array.read(0, 1000, std::span(out));
  const std::uint64_t counted_here = reads_counted(array.stats());
  EXPECT_EQ(in_child([&] { return std::to_string(reads_counted(array.stats())); }), "0");
  EXPECT_EQ(reads_counted(array.stats()), counted_here);
}

TEST_F(ArrayTest, AChildOfForkCountsItsReadsThroughAMapping) {
  const Array array = open(10'000, 10, 1_MiB, EngineKind::kMap);
  Numbers out(1000);
  array.read(0, 100, std::span(out));
  EXPECT_EQ(array.stats().bytes_from_mapping, 4000u);
  EXPECT_EQ(in_child([&] {
              array.read(0, 1, std::span(out).first(10));
              return std::to_string(array.stats().bytes_from_mapping);
            }),
            "40");
}

TEST_P(EveryEngine, RequestsLargerThanTheBudgetAreStreamed) {
  const std::uint64_t count = 20_MiB / 4;
  const Array array = open(count, 5, 2_MiB, GetParam());
  Numbers out(count);
  array.read(0, count / 5, std::span(out));
  EXPECT_EQ(out, counting(0, count));
  EXPECT_LE(array.budget().peak(), 2_MiB);
}

TEST_P(EveryEngine, GatheringMoreRowsThanOneShareOfStartsIsFine) {
  const Array array = open(100'000, 2, 1_MiB, GetParam());  // small plans hold 1,024 starts
  const Rows64 rows = some_rows(array.rows(), 10'000);
  EXPECT_EQ(gathered(array, rows), rows_of_counting(rows, 2));
}

TEST_P(EveryEngine, CropsAreRowsThatFollowEachStart) {
  const Array array = open(100'000, 2, 2_MiB, GetParam());
  const Rows64 starts{40'000, 7, 49'990, 7};
  Numbers out(4 * 10 * 2), want;
  array.crops(starts, 10, std::as_writable_bytes(std::span(out)));
  for (const auto start : starts) {
    const Numbers crop = counting(start * 2, 20);
    want.insert(want.end(), crop.begin(), crop.end());
  }
  EXPECT_EQ(out, want);
}

TEST_P(EveryEngine, AskingForNothingIsFine) {
  const Array array = open(1000, 10, 2_MiB, GetParam());
  array.gather(Rows64{}, std::span<std::byte>());
  array.read(100, 0, std::span<std::byte>());
  array.crops(Rows64{0, 100}, 0, std::span<std::byte>());
  EXPECT_EQ(error_of([&] { array.read(101, 0, std::span<std::byte>()); }).kind(),
            ErrorKind::kIndex);
}

TEST_P(EveryEngine, AnArrayWithoutRowsIsFine) {
  const auto path = folder_.write("empty.npy", npy_file(npy_header("'<u4'", "(0, 10)"), 0));
  const Array array = Array::open(path, {.budget = 2_MiB, .engine = GetParam()});
  EXPECT_EQ(array.rows(), 0u);
  array.read(0, 0, std::span<std::byte>());
  for ([[maybe_unused]] const Chunk& chunk : array.chunks(5)) FAIL() << "a chunk of nothing";
  for ([[maybe_unused]] const Chunk& chunk : array.chunks(5, shuffled(1))) FAIL();
  std::byte out[40];
  EXPECT_EQ(error_of([&] { array.gather(Rows64{0}, out); }).kind(), ErrorKind::kIndex);
}

TEST_P(EveryEngine, EverythingReservedIsGivenBackAtClose) {
  const Budget budget(4_MiB);
  Array array = open(2'000'000, 10, budget, GetParam());
  const Rows64 rows = some_rows(array.rows(), 100);
  gathered(array, rows);
  for (const Chunk& chunk : array.chunks(1000)) EXPECT_TRUE(counts_on(chunk));
  EXPECT_GT(budget.in_use(), 0u);
  array.close();
  EXPECT_EQ(budget.in_use(), 0u);
}

TEST_P(EveryEngine, ChunksThatOutliveTheArrayHoldWhatTheyNeed) {
  const Budget budget(4_MiB);
  Array array = open(2'000'000, 10, budget, GetParam());
  {
    Chunks chunks = array.chunks(1000);
    array.close();
    std::uint64_t rows = 0;
    for (const Chunk& chunk : chunks) rows += counts_on(chunk) ? chunk.size() : 0;
    EXPECT_EQ(rows, 200'000u);
  }
  EXPECT_EQ(budget.in_use(), 0u);
}

TEST_F(ArrayTest, ARowOutsideTheArrayIsRefusedWithTheNumbers) {
  const Array array = open(12'345 * 2, 2, 2_MiB);
  std::byte out[1000];
  const Error gather = error_of([&] { array.gather(Rows64{1, 12'345}, out); });
  EXPECT_EQ(gather.kind(), ErrorKind::kIndex);
  EXPECT_EQ(gather.operation(), "gather");
  EXPECT_THAT(gather.what(), AllOf(HasSubstr("row 12,345 "), HasSubstr("12,345 rows"),
                                   HasSubstr(folder_.path("numbers"))));
  const Error read = error_of([&] { array.read(12'340, 6, out); });
  EXPECT_EQ(read.kind(), ErrorKind::kIndex);
  EXPECT_THAT(read.what(), AllOf(HasSubstr("6 rows from row 12,340"), HasSubstr("12,345 rows")));
  EXPECT_EQ(error_of([&] { array.read(1, UINT64_MAX, out); }).kind(), ErrorKind::kIndex);
  EXPECT_EQ(error_of([&] { array.read(UINT64_MAX, 1, out); }).kind(), ErrorKind::kIndex);
  EXPECT_EQ(error_of([&] { array.crops(Rows64{0, 12'344}, 2, out); }).kind(), ErrorKind::kIndex);
}

TEST_F(ArrayTest, AnOutThatIsTooSmallIsRefusedWithTheNumbers) {
  const Array array = open(100, 2, 2_MiB);
  std::byte out[23];
  const Error error = error_of([&] { array.read(0, 3, out); });
  EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("3 rows of 8 bytes need 24 bytes"), HasSubstr("has 23")));
  EXPECT_THAT(error_of([&] { array.gather(Rows64{1, 2, 3}, out); }).what(), HasSubstr("has 23"));
  EXPECT_THAT(error_of([&] { array.crops(Rows64{1}, 3, out); }).what(), HasSubstr("has 23"));
}

TEST_F(ArrayTest, AnotherTypeThanTheArraysIsRefusedByName) {
  const Array array = open(100, 2, 2_MiB);
  std::vector<float> floats(2);
  const Error read = error_of([&] { array.read(0, 1, std::span(floats)); });
  EXPECT_EQ(read.kind(), ErrorKind::kInvalid);
  EXPECT_THAT(read.what(), AllOf(HasSubstr("uint32"), HasSubstr("float32")));
  std::vector<std::uint64_t> wide(2);
  EXPECT_THAT(error_of([&] { array.gather(Rows64{0}, std::span(wide)); }).what(),
              AllOf(HasSubstr("uint32"), HasSubstr("uint64")));
}

TEST_F(ArrayTest, RecordsAreReadAsAnyTypeOfTheirSize) {
  struct Pair {
    std::uint32_t a, b;
  };
  const Array array = Array::open(
      numbers("pairs", 20), {.budget = 2_MiB, .dtype = DType{DTypeKind::kRecord, sizeof(Pair)}});
  std::vector<Pair> out(10);
  array.read(0, 10, std::span(out));
  EXPECT_EQ(out[9].a, 18u);
  EXPECT_EQ(out[9].b, 19u);
}

TEST_F(ArrayTest, UseAfterCloseIsAnError) {
  Array array = open(100, 2, 2_MiB);
  array.close();
  array.close();
  std::byte out[8];
  for (const Error& error :
       {error_of([&] { array.rows(); }), error_of([&] { array.read(0, 1, out); }),
        error_of([&] { array.gather(Rows64{0}, out); }), error_of([&] { array.chunks(1); }),
        error_of([&] { array.engine(); }), error_of([&] { array.budget(); })}) {
    EXPECT_EQ(error.kind(), ErrorKind::kClosed) << error.what();
  }
}

TEST_F(ArrayTest, MovesAndLeavesAClosedOneBehind) {
  Array first = open(100, 2, 2_MiB);
  Array second = std::move(first);
  EXPECT_EQ(gathered(second, Rows64{7}), (Numbers{14, 15}));
  EXPECT_EQ(error_of([&] { first.rows(); }).kind(), ErrorKind::kClosed);  // NOLINT: on purpose
  first = std::move(second);
  EXPECT_EQ(gathered(first, Rows64{8}), (Numbers{16, 17}));
}

TEST_F(ArrayTest, ABudgetBelowTheSmallestIsRefusedWithTheArithmetic) {
  const Error error = error_of([&] { open(100, 2, 512_KiB); });
  EXPECT_EQ(error.kind(), ErrorKind::kBudget);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("524,288"), HasSubstr("1,048,576")));
}

TEST_F(ArrayTest, ArraysOfOneBudgetStayUnderItTogether) {
  const Budget budget(4_MiB);
  const auto path = numbers("shared", 2'000'000);
  const Array first = Array::open(path, counted(10, budget, EngineKind::kDirect));
  const std::uint64_t one = budget.in_use();
  const Array second = Array::open(path, counted(10, budget, EngineKind::kDirect));
  EXPECT_GT(budget.in_use(), one);
  EXPECT_LE(budget.in_use(), 2 * one);  // the second takes smaller buffers
  const Rows64 rows = some_rows(200'000, 500);
  EXPECT_EQ(gathered(first, rows), gathered(second, rows));
  EXPECT_LE(budget.peak(), budget.limit());
}

TEST_F(ArrayTest, AnArrayThatDoesNotFitASharedBudgetSaysWhoHoldsIt) {
  const Budget budget(1_MiB);
  const auto path = numbers("shared", 1'000'000);
  std::vector<Array> opened;
  const Error error = error_of([&] {
    for (int i = 0; i < 100; ++i) {
      opened.push_back(Array::open(path, counted(10, budget, EngineKind::kDirect)));
    }
  });
  EXPECT_EQ(error.kind(), ErrorKind::kBudget);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("read buffers"),
                                  HasSubstr("1,048,576 bytes, of which " +
                                            with_commas(budget.in_use()) + " are in use")));
  EXPECT_FALSE(opened.empty());
  opened.clear();
  EXPECT_EQ(budget.in_use(), 0u);
}

TEST_F(ArrayTest, AGlobIsTakenInSortedOrder) {
  numbers("part-2", 30, 200);
  numbers("part-0", 100, 0);
  numbers("part-1", 100, 100);
  const Array array = Array::open(folder_.path("part-*"), counted(10, 2_MiB));
  ASSERT_EQ(array.rows(), 23u);
  EXPECT_EQ(array.paths().size(), 3u);
  Numbers out(230);
  array.read(0, 23, std::span(out));
  EXPECT_EQ(out, counting(0, 230));
}

TEST_F(ArrayTest, FlattenSeesElementsInTheOrderInWhichTheyAreStored) {
  ArrayOptions options = counted(10, 2_MiB);
  options.flatten = true;
  const Array array = Array::open(numbers("flat", 1000), options);
  EXPECT_EQ(array.shape(), Rows64{1000});
  EXPECT_EQ(gathered(array, Rows64{999, 3, 500}), (Numbers{999, 3, 500}));
}

// Data that fits is mapped, until a chunk needs the memory of the mapping.
TEST_F(ArrayTest, AutoMapsDataThatFitsAndStopsWhenAChunkNeedsTheRoom) {
  const std::uint64_t count = 6_MiB / 4, columns = 256;
  const Array array = open(count, columns, 8_MiB);
  EXPECT_EQ(array.engine().chosen, EngineKind::kMap);
  const Rows64 rows = some_rows(array.rows(), 1000);
  EXPECT_EQ(gathered(array, rows), rows_of_counting(rows, columns));
  std::uint64_t seen = 0;
  for (const Chunk& chunk : array.chunks(4_MiB / 1024, shuffled(1))) {
    EXPECT_TRUE(counts_on(chunk));
    seen += chunk.size();
  }
  EXPECT_EQ(seen, array.rows());
  EXPECT_NE(array.engine().chosen, EngineKind::kMap);
  EXPECT_EQ(array.engine().asked, EngineKind::kAuto);
  EXPECT_EQ(gathered(array, rows), rows_of_counting(rows, columns));
  EXPECT_LE(array.budget().peak(), 8_MiB);
}

// Chunks that cross into another file are copied. Their memory is reserved when the range is made,
// not when the first of them is reached.
TEST_F(ArrayTest, ChunksThatCrossFilesOfAMappingFitFromTheStartOrAreRead) {
  const std::uint64_t columns = 256, rows = 3_MiB / 1024;
  const std::vector<std::string> paths = {numbers("a", rows * columns),
                                          numbers("b", rows * columns, rows * columns)};
  const Array array = Array::open(paths, counted(columns, 8_MiB));
  ASSERT_EQ(array.engine().chosen, EngineKind::kMap);
  EXPECT_EQ(array.chunks(rows / 2).buffers(), 0);  // none crosses
  EXPECT_EQ(array.chunks(1000).buffers(), 1);
  EXPECT_EQ(array.engine().chosen, EngineKind::kMap);
  std::uint64_t seen = 0;
  for (const Chunk& chunk : array.chunks(2000)) {  // 2 MiB, which do not fit beside the mapping
    EXPECT_TRUE(counts_on(chunk));
    seen += chunk.size();
  }
  EXPECT_EQ(seen, 2 * rows);
  EXPECT_NE(array.engine().chosen, EngineKind::kMap);
  EXPECT_LE(array.budget().peak(), 8_MiB);
}

// A short read of another thread must not make the memory of the mapping look as if it were needed.
TEST_F(ArrayTest, AResultThatNeedsTheRoomOfTheMappingWaitsForShortReads) {
  const Array array = open(6_MiB / 4, 4, 8_MiB);
  ASSERT_EQ(array.engine().chosen, EngineKind::kMap);
  Array::Impl& impl = Internals::of(array);
  std::atomic<bool> refused = false;
  std::optional<Array::Impl::SettledEngine> short_read(std::in_place, impl);
  ASSERT_TRUE(*short_read);
  std::thread reader([&] {
    try {
      impl.room_for_read(4_MiB, "results");
    } catch (const Error&) {
      refused = true;
    }
  });
  while (!refused && impl.engine_if_settled()) std::this_thread::yield();  // until it waits
  short_read.reset();
  reader.join();
  EXPECT_FALSE(refused);
  EXPECT_NE(array.engine().chosen, EngineKind::kMap);
}

// The same for calls that only ask the engine something.
TEST_F(ArrayTest, AResultThatNeedsTheRoomOfTheMappingIsNotRefusedWhileOthersAskForTheEngine) {
  std::atomic<int> asked = 0;
  std::atomic<bool> ended = false;
  for (int i = 0; i < 20; ++i) {
    const Array array = open(6_MiB / 4, 4, 8_MiB);
    ASSERT_EQ(array.engine().chosen, EngineKind::kMap);
    Array::Impl& impl = Internals::of(array);
    asked = 0;
    ended = false;
    std::thread other([&] {
      for (; !ended; ++asked) {
        array.engine();
        impl.maps_files();
        impl.chunk_rows_that_fit(true, 1);
      }
    });
    while (asked < 10) std::this_thread::yield();
    EXPECT_NO_THROW(impl.room_for_read(4_MiB, "results"));
    ended = true;
    other.join();
    EXPECT_NE(array.engine().chosen, EngineKind::kMap);
  }
}

TEST_F(ArrayTest, AMappingThatIsStillInUseStaysAndTheArrayWorksOn) {
  const Array array = open(6_MiB / 4, 4, 8_MiB);
  ASSERT_EQ(array.engine().chosen, EngineKind::kMap);
  Chunks in_place = array.chunks(1000);
  auto at = in_place.begin();
  // Now neither a buffer nor another engine fits beside the mapping, which the range still uses.
  const Reservation other = array.budget().reserve(array.budget().left() - 64_KiB, "another");
  EXPECT_EQ(error_of([&] { array.chunks(4_MiB / 16, shuffled(1)); }).kind(), ErrorKind::kBudget);
  const Rows64 rows = some_rows(array.rows(), 1000);
  EXPECT_EQ(gathered(array, rows), rows_of_counting(rows, 4));
  EXPECT_TRUE(counts_on(*at));
  EXPECT_TRUE(counts_on(*++at));
}

// A chunk of any size beside a mapping is either read or refused by the budget.
TEST_F(ArrayTest, ChunksOfAnySizeBesideAMappingAreReadOrRefused) {
  const std::string path = numbers("numbers", 6_MiB / 4);
  for (std::uint64_t rows = 64; rows <= 6_MiB / 1024; rows += 64) {
    const Array array = Array::open(path, counted(256, 8_MiB));
    ASSERT_EQ(array.engine().chosen, EngineKind::kMap);
    try {
      Chunks chunks = array.chunks(rows, shuffled(1));
      ASSERT_TRUE(counts_on(*chunks.begin()));
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kBudget);
      ASSERT_GT(rows, 5_MiB / 1024);
    }
  }
}

TEST_F(ArrayTest, EngineNamesAreThereAndBack) {
  for (const EngineKind kind : kAllEngines) EXPECT_EQ(parse_engine(engine_name(kind)), kind);
  EXPECT_THAT(error_of([] { parse_engine("mmap"); }).what(),
              AllOf(HasSubstr("\"mmap\""), HasSubstr("auto, map, remap, advise, read, direct")));
}

TEST_F(ArrayTest, CropsComeInTheirTypeOrAreRefused) {
  const Array array = open(1000, 10, 4_MiB);
  Numbers out(2 * 3 * 10);
  array.crops(Rows64{5, 90}, 3, std::span(out));
  EXPECT_EQ(out, rows_of_counting(Rows64{5, 6, 7, 90, 91, 92}, 10));
  std::vector<float> wrong(out.size());
  EXPECT_EQ(error_of([&] {
              array.crops(Rows64{5, 90}, 3, std::span(wrong));
            }).kind(),
            ErrorKind::kInvalid);
}

}  // namespace
}  // namespace evenkeel
