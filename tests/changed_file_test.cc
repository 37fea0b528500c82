// Files that change while an array is open: reading returns the old data, or an error that names
// the file. It never returns other data or raises a signal.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "array/internal.h"
#include "tests/counting_file.h"
#include "tests/forked.h"
#include "tests/watchdog.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kChangedColumns = 8, kChangedRowBytes = 32, kChangedRows = 100'000;

class ChangedFile : public testing::TestWithParam<EngineKind> {
 protected:
  Array open() {
    path_ = counting_file(folder_, "numbers", kChangedRows * kChangedColumns);
    // Modification times advance in ticks of the kernel's clock. An old one makes a change within
    // this tick visible.
    std::filesystem::last_write_time(
        path_, std::filesystem::file_time_type::clock::now() - std::chrono::seconds(10));
    return Array::open(path_, counted(kChangedColumns, 2_MiB, GetParam()));
  }
  static std::vector<std::uint64_t> rows() {
    std::vector<std::uint64_t> picks;
    for (std::uint64_t row = 3; row < kChangedRows; row += 997) picks.push_back(row);
    return picks;
  }
  static void read(const Array& array) {
    ASSERT_EQ(gathered(array, rows()), rows_of_counting(rows(), kChangedColumns));
  }
  static void scan(const Array& array) {
    for (const Chunk& chunk : array.chunks(1000)) ASSERT_TRUE(counts_on(chunk));
  }
  // Every way to read is now an error that names the file.
  void expect_refused(const Array& array) const {
    for (const Error& error : {error_of([&] { read(array); }), error_of([&] { scan(array); }),
                               error_of([&] { read(array); }), error_of([&] { scan(array); })}) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
      EXPECT_EQ(error.path(), path_) << error.what();
      EXPECT_FALSE(error.hint_text().empty()) << error.what();
    }
  }
  void rewrite(std::uint32_t first) const {
    const Numbers others = counting(first, kChangedRows * kChangedColumns);
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.write(reinterpret_cast<const char*>(others.data()),
               static_cast<std::streamsize>(kChangedRows * kChangedRowBytes));
  }

  TempFolder folder_;
  std::string path_;
};

TEST_P(ChangedFile, TruncatedIsAnError) {
  for (const bool read_before : {false, true}) {
    const Array array = open();
    if (read_before) read(array);
    ASSERT_EQ(::truncate(path_.c_str(), kChangedRows * kChangedRowBytes / 2), 0);
    expect_refused(array);
  }
}

TEST_P(ChangedFile, TruncatedToNothingIsAnError) {
  const Array array = open();
  read(array);
  ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
  expect_refused(array);
}

TEST_P(ChangedFile, GrownIsAnError) {
  for (const bool read_before : {false, true}) {
    const Array array = open();
    if (read_before) read(array);
    std::ofstream(path_, std::ios::binary | std::ios::app) << "more";
    expect_refused(array);
  }
}

TEST_P(ChangedFile, RewrittenInPlaceIsAnError) {
  for (const bool read_before : {false, true}) {
    const Array array = open();
    if (read_before) read(array);
    rewrite(1);
    expect_refused(array);
  }
}

TEST_P(ChangedFile, ReplacedBeforeAnythingWasReadIsNeverTheNewData) {
  const Array array = open();
  std::filesystem::rename(counting_file(folder_, "other", kChangedRows * kChangedColumns, 1),
                          path_);
  for (int i = 0; i < 3; ++i) {
    for (const Error& error : {error_of([&] { read(array); }), error_of([&] { scan(array); })}) {
      EXPECT_TRUE(error.path() == path_ || error.operation() == "test") << error.what();
    }
  }
}

TEST_P(ChangedFile, ReplacedWhileReadingIsTheOldDataOrAnError) {
  const Array array = open();
  read(array);
  scan(array);
  std::filesystem::rename(counting_file(folder_, "other", kChangedRows * kChangedColumns, 1),
                          path_);
  for (int i = 0; i < 3; ++i) {
    for (const Error& error : {error_of([&] { read(array); }), error_of([&] { scan(array); })}) {
      EXPECT_TRUE(error.path() == path_ || error.operation() == "test") << error.what();
    }
  }
}

TEST_P(ChangedFile, DeletedIsTheOldDataOrAnErrorThatNamesIt) {
  for (const bool read_before : {false, true}) {
    const Array array = open();
    if (read_before) read(array);
    std::filesystem::remove(path_);
    for (const Error& error : {error_of([&] { read(array); }), error_of([&] { scan(array); })}) {
      EXPECT_TRUE(error.path() == path_ || error.operation() == "test") << error.what();
    }
  }
}

// While chunks are read ahead: each chunk that is handed out has the old data, and then there is an
// error.
TEST_P(ChangedFile, RewrittenDuringAScanIsAnErrorBeforeTheScanEnds) {
  const Array array = open();
  std::uint64_t chunks = 0, wrong = 0;
  const Error error = error_of([&] {
    for (const Chunk& chunk : array.chunks(500)) {
      wrong += counts_on(chunk) ? 0 : 1;
      if (++chunks == 5) rewrite(1);
    }
  });
  EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
  EXPECT_EQ(error.path(), path_);
  EXPECT_EQ(wrong, 0u) << "of " << chunks;
}

TEST_P(ChangedFile, AnArrayOpenedAgainReadsTheNewData) {
  Array array = open();
  read(array);
  rewrite(5);
  expect_refused(array);
  array = Array::open(path_, counted(kChangedColumns, 2_MiB, GetParam()));
  const std::vector<std::uint64_t> first{0};
  EXPECT_EQ(gathered(array, first), counting(5, kChangedColumns));
}

// An array that has the file open may continue; opening it later is an error that names the file.
TEST_P(ChangedFile, PermissionTakenIsTheOldDataOrAnErrorThatNamesIt) {
  path_ = counting_file(folder_, "numbers", kChangedRows * kChangedColumns);
  std::filesystem::permissions(folder_.root(), std::filesystem::perms(0777));
  if (::getuid() == 0) {
    ASSERT_EQ(::chown(path_.c_str(), 65534, 65534), 0);
  }
  for (const bool read_before : {false, true}) {
    const std::string said = in_child([&] {
      if (::getuid() == 0 && !become_nobody()) return std::string("still root");
      ::chmod(path_.c_str(), 0600);
      const Array array = Array::open(path_, counted(kChangedColumns, 2_MiB, GetParam()));
      if (read_before) read(array);
      ::chmod(path_.c_str(), 0000);
      for (const Error& error : {error_of([&] { read(array); }), error_of([&] { scan(array); })}) {
        if (error.operation() == "test") continue;  // nothing was thrown, which is right, too
        if (error.code() != EACCES || error.path() != path_) return std::string(error.what());
      }
      return std::string("well");
    });
    EXPECT_EQ(said, "well");
  }
}

// Data that fits is mapped; a large result, or a chunk, makes the array read it instead. It must
// still be the file that was opened, or an error.
class LeftMapping : public testing::Test {
 protected:
  static constexpr std::uint64_t kBudget = 5_MiB;
  LeftMapping() : path_(counting_file(folder_, "numbers", kChangedRows * kChangedColumns)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // times move in ticks of a clock
  }
  Array open_mapped() const {
    Array array = Array::open(path_, counted(kChangedColumns, kBudget));
    EXPECT_EQ(array.engine().chosen, EngineKind::kMap);
    EXPECT_TRUE(is_old(array, 7));
    return array;
  }
  static bool is_old(const Array& array, std::uint64_t row) {
    const std::vector<std::uint64_t> rows{row, kChangedRows - 1};
    return gathered(array, rows) == rows_of_counting(rows, kChangedColumns);
  }
  static void read_large(const Array& array) {
    const Reservation room = Internals::of(array).room_for_read(kBudget * 2 / 3, "results");
    ASSERT_NE(array.engine().chosen, EngineKind::kMap);
    ASSERT_TRUE(is_old(array, 12'345));
  }
  static void scan_large(const Array& array) {
    for (const Chunk& chunk : array.chunks(kChangedRows / 2, shuffled(1)))
      ASSERT_TRUE(counts_on(chunk));
    ASSERT_NE(array.engine().chosen, EngineKind::kMap);
  }
  void replace() const {
    std::filesystem::rename(counting_file(folder_, "other", kChangedRows * kChangedColumns, 1),
                            path_);
  }
  void replace_by_smaller() const {
    std::filesystem::rename(counting_file(folder_, "other", kChangedRows, 1), path_);
  }
  void rewrite_keeping_mtime() const {
    struct stat before;
    ASSERT_EQ(::stat(path_.c_str(), &before), 0);
    const Numbers others = counting(1, kChangedRows * kChangedColumns);
    std::fstream(path_, std::ios::binary | std::ios::in | std::ios::out)
        .write(reinterpret_cast<const char*>(others.data()), kChangedRows * kChangedRowBytes);
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  }

  TempFolder folder_;
  const std::string path_;
};

TEST_F(LeftMapping, IsTheOldDataWhenTheFileIsReplacedOrDeleted) {
  const std::function<void()> changes[] = {[&] { replace(); }, [&] { replace_by_smaller(); },
                                           [&] { std::filesystem::remove(path_); }};
  for (const auto& change : changes) {
    for (const auto& read : {&LeftMapping::read_large, &LeftMapping::scan_large}) {
      counting_file(folder_, "again", kChangedRows * kChangedColumns);
      std::filesystem::rename(folder_.path("again"), path_);
      const Array array = open_mapped();
      change();
      EXPECT_TRUE(is_old(array, 7));
      read(array);
      EXPECT_TRUE(is_old(array, 99));
    }
  }
}

TEST_F(LeftMapping, IsAnErrorWhenTheFileIsRewrittenEvenIfItsMtimeIsSetBack) {
  const Array array = open_mapped();
  rewrite_keeping_mtime();
  for (int i = 0; i < 2; ++i) {
    for (const Error& error :
         {error_of([&] { is_old(array, 7); }), error_of([&] { read_large(array); }),
          error_of([&] { scan_large(array); })}) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
      EXPECT_EQ(error.path(), path_) << error.what();
    }
  }
}

// A result that can never fit is an error, and the array continues to map the file.
TEST_F(LeftMapping, IsNotLeftByACallThatFails) {
  const Array array = open_mapped();
  for (int i = 0; i < 3; ++i) {
    const auto too_large = [&] { Internals::of(array).room_for_read(kBudget, "results"); };
    EXPECT_EQ(error_of(too_large).kind(), ErrorKind::kBudget);
    EXPECT_EQ(array.engine().chosen, EngineKind::kMap);
    EXPECT_TRUE(is_old(array, 7));
  }
}

TEST_F(LeftMapping, IsKeptBesideARangeThatUsesIt) {
  const Array array = open_mapped();
  Chunks chunks = array.chunks(1000);
  auto at = chunks.begin();
  for (int i = 0; i < 3; ++i) {
    const auto too_large = [&] { Internals::of(array).room_for_read(4_MiB, "results"); };
    EXPECT_EQ(error_of(too_large).kind(), ErrorKind::kBudget);
    EXPECT_EQ(array.engine().chosen, EngineKind::kMap);
    EXPECT_TRUE(is_old(array, 7));
    EXPECT_TRUE(counts_on(*++at));
  }
}

TEST_F(LeftMapping, ThreadsThatReadMeanwhileGetTheirRows) {
  Watchdog watchdog;
  watchdog.enter("threads that read while a mapping is left");
  for (int round = 0; round < 5; ++round) {
    const Array array = open_mapped();
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (std::uint64_t i = 0; i < 50; ++i) {
          // Small results fit in addition to the mapping. Large ones do not, and two of them do
          // not fit together.
          const bool large = thread % 2 == 1;
          const Reservation room =
              Internals::of(array).room_for_read(large ? kBudget * 2 / 3 : 100'000, "results");
          wrong += is_old(array, i * 31) ? 0 : 1;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_NE(array.engine().chosen, EngineKind::kMap);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, ChangedFile, testing::ValuesIn(kAllEngines),
                         [](const auto& tested) { return std::string(engine_name(tested.param)); });

// The file is truncated and extended again and again while it is read. Reading returns the data,
// zeros where the file was extended, or an error, and never raises a signal. Not for `map`, `remap`
// and `advise`: they touch mapped pages, which can be truncated right before (docs/reliability.md).
class TruncatedMeanwhile : public testing::TestWithParam<EngineKind> {};

TEST_P(TruncatedMeanwhile, NoSignalReachesTheReader) {
  const TempFolder folder;
  const std::string path = counting_file(folder, "numbers", kChangedRows * kChangedColumns);
  const std::string said = in_child([&] {
    std::atomic<bool> over = false;
    std::thread other([&] {
      while (!over) {
        if (::truncate(path.c_str(), 4096) != 0) return;
        if (::truncate(path.c_str(), kChangedRows * kChangedRowBytes) != 0) return;
      }
    });
    std::uint64_t errors = 0;
    std::string other_error;
    // Reads longer if the thread that truncates has to wait for a processor.
    const auto begun = std::chrono::steady_clock::now();
    const auto goes_on = [&] {
      const auto took = std::chrono::steady_clock::now() - begun;
      return took < std::chrono::milliseconds(300) ||
             (errors == 0 && took < std::chrono::seconds(20));
    };
    while (goes_on() && other_error.empty()) {
      try {
        const Array array = Array::open(path, counted(kChangedColumns, 2_MiB, GetParam()));
        std::vector<std::uint64_t> rows;
        for (std::uint64_t row = 3; row < kChangedRows / 2; row += 997) rows.push_back(row);
        for (int i = 0; i < 5; ++i) gathered(array, rows);
        for (const Chunk& chunk : array.chunks(1000)) {
          if (chunk.position() > 10'000) break;
        }
      } catch (const Error& error) {
        if (error.path() != path) other_error = error.what();
        ++errors;
      }
    }
    over = true;
    other.join();
    if (!other_error.empty()) return other_error;
    return errors > 0 ? std::string("errors") : "none noticed";
  });
  EXPECT_EQ(said, "errors");
}

INSTANTIATE_TEST_SUITE_P(Engines, TruncatedMeanwhile,
                         testing::Values(EngineKind::kRead, EngineKind::kDirect, EngineKind::kAuto),
                         [](const auto& tested) { return std::string(engine_name(tested.param)); });

}  // namespace
}  // namespace evenkeel
