// If every read of a file returned EAGAIN, as it may on a filesystem in user space, reading never
// ended and kept one core busy. Now it is an error after about a second.
#include <gtest/gtest.h>

#include "tests/counting_file.h"
#include "tests/fault_script.h"
#include "tests/watchdog.h"

namespace evenkeel {
namespace {

TEST(PutOffForGood, IsAnErrorThatNamesTheFile) {
  const TempFolder folder(disk_folder().value_or(std::filesystem::temp_directory_path()));
  const std::string path = counting_file(folder, "numbers", 80'000);
  const std::vector<std::uint64_t> rows{5, 9'000};
  Watchdog watchdog;
  for (const bool rings : {true, false}) {
    for (const EngineKind engine : {EngineKind::kRead, EngineKind::kDirect}) {
      const Array array = Array::open(path, counted(8, 1_MiB, engine));
      FaultScript script;
      if (!rings) script.forbid_rings();
      for (const sys::Call call :
           {sys::Call::kPread, sys::Call::kPreadFlags, sys::Call::kRingEnter}) {
        watchdog.enter(std::string(engine_name(engine)));
        script.spoil(call, 0, {.error = EAGAIN}, true);
        const Error error = error_of([&] { gathered(array, rows); });
        EXPECT_EQ(error.code() == EAGAIN, script.reached()) << error.what();
        script.spare();
        EXPECT_EQ(gathered(array, rows), rows_of_counting(rows, 8));
      }
    }
  }
}

TEST(PutOffForGood, AtOpenToo) {
  const TempFolder folder;
  const std::string path = folder.write("x.npy", "\x93NUMPY");
  Watchdog watchdog;
  FaultScript script;
  script.spoil(sys::Call::kPread, 0, {.error = EAGAIN}, true);
  const Error error = error_of([&] { Array::open(path); });
  EXPECT_EQ(error.code(), EAGAIN) << error.what();
  EXPECT_EQ(error.path(), path);
}

}  // namespace
}  // namespace evenkeel
