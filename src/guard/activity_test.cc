#include "guard/activity.h"

#include <gtest/gtest.h>

#include "evenkeel/bytes.h"
#include "guard/test_mapping.h"

namespace evenkeel {
namespace {

TEST(Activity, MappedPagesAreTheThirdNumberInStatm) {
  EXPECT_EQ(parse_statm_shared("900 80 7 1 0 9 0\n"), 7u);
  EXPECT_FALSE(parse_statm_shared("900 80"));
  EXPECT_FALSE(parse_statm_shared("900"));
  EXPECT_FALSE(parse_statm_shared(""));
  EXPECT_FALSE(parse_statm_shared("900 80 x"));
}

TEST(Activity, GrowthIsTheLargerOfReadAndMapped) {
  EXPECT_EQ(growth(Activity{0, 0, 10, 10}, Activity{0, 0, 30, 15}), 20u);
  EXPECT_EQ(growth(Activity{0, 0, 10, 10}, Activity{0, 0, 11, 40}), 30u);
  EXPECT_EQ(growth(Activity{0, 0, 10, 10}, Activity{0, 0, 10, 4}), 0u);
}

TEST(Activity, HolesAndCopiedPagesGrowByFaultsAlone) {
  const std::uint64_t page = sys::page_size();
  EXPECT_EQ(most_growth(Activity{2, 5, 10, 10}, Activity{2, 5, 30, 15}, 1_MiB), 20u);
  EXPECT_EQ(most_growth(Activity{2, 5, 0, 0}, Activity{2, 9, 0, 0}, 1_MiB), 4 * page);
  EXPECT_EQ(most_growth(Activity{2, 5, 0, 0}, Activity{3, 6, 0, 0}, 1_MiB), page + 1_MiB);
}

TEST(MemoryActivity, AMappingThatIsReadShowsInAllCounters) {
  const NumberFile file(64_MiB);
  if (!file.can_be_dropped()) GTEST_SKIP() << "this file system keeps its pages (tmpfs)";
  const TestMapping map(file);
  OwnActivity reader;
  const Activity before = reader.read();
  EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
  const Activity after = reader.read();
  EXPECT_GT(after.major_faults, before.major_faults);
  EXPECT_GT(after.faults - before.faults, after.major_faults - before.major_faults);
  EXPECT_GE(growth(before.mapped, after.mapped), 60_MiB);
  EXPECT_GE(growth(before.read_bytes, after.read_bytes), 64_MiB);
  EXPECT_GE(growth(before, after), 64_MiB);
}

}  // namespace
}  // namespace evenkeel
