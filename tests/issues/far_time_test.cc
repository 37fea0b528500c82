// The nanoseconds of a time after the year 2262 do not fit 63 bits, and the owner of a file can set
// such a time. UBSan (preset dev) reported the overflow.
#include <gtest/gtest.h>

#include "evenkeel/array.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

constexpr time_t kYear2300 = 10'413'792'000;

bool set_time(const std::string& path, time_t seconds, long nanoseconds) {
  const timespec times[2] = {{seconds, nanoseconds}, {seconds, nanoseconds}};
  struct stat status;
  return ::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0 && ::stat(path.c_str(), &status) == 0 &&
         status.st_mtim.tv_sec == seconds && status.st_mtim.tv_nsec == nanoseconds;
}

TEST(FarTime, AFileOfTheYear2300IsReadAndItsChangesAreSeen) {
  const TempFolder folder;
  const std::string path = folder.write("data", "0123456789");
  if (!set_time(path, kYear2300, 5)) GTEST_SKIP() << "the filesystem has no such times";
  const Array array = Array::open(
      path, {.budget = 1_MiB, .engine = EngineKind::kRead, .dtype = DType::of<std::uint8_t>()});
  std::byte out[10];
  array.read(0, 10, std::span(out));
  EXPECT_EQ(out[9], std::byte{'9'});
  ASSERT_TRUE(set_time(path, kYear2300, 6));
  EXPECT_THROW(array.read(0, 10, std::span(out)), Error);
}

}  // namespace
}  // namespace evenkeel
