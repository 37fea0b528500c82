#include "process_guard/process_activity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "base/sys.h"
#include "evenkeel/bytes.h"
#include "process_guard/test_process.h"

namespace evenkeel {
namespace {

void expect_no_less(const Activity& before, const Activity& after) {
  EXPECT_GE(after.faults, before.faults);
  EXPECT_GE(after.major_faults, before.major_faults);
  EXPECT_GE(after.read_bytes, before.read_bytes);
}

class ProcessActivityTest : public testing::Test {
 protected:
  const NumberFile file_{8_MiB};
  ProcessActivity activity_;
};

TEST_F(ProcessActivityTest, IsZeroWithoutProcesses) {
  const Activity activity = activity_.read();
  EXPECT_EQ(activity.faults + activity.read_bytes + activity.mapped + activity.major_faults, 0u);
}

TEST_F(ProcessActivityTest, CountsFromFollowOn) {
  TestProcess process(file_);
  activity_.follow({process.pid()});
  const Activity before = activity_.read();
  EXPECT_EQ(before.read_bytes, 0u);
  process.touch();
  const Activity after = activity_.read();
  EXPECT_GT(after.faults, before.faults);
  EXPECT_GE(after.mapped, before.mapped + 8_MiB);
  if (file_.can_be_dropped()) {
    EXPECT_GE(after.read_bytes, 8_MiB);
    EXPECT_GT(after.major_faults, 0u);
  }
}

TEST_F(ProcessActivityTest, AddsUpProcesses) {
  TestProcess one(file_), two(file_);
  activity_.follow({one.pid(), two.pid()});
  const std::uint64_t before = activity_.read().mapped;
  one.touch();
  two.touch();
  EXPECT_GE(activity_.read().mapped, before + 16_MiB);
}

TEST_F(ProcessActivityTest, KeepsTheReadsOfAnEndedProcessButNotItsMappedBytes) {
  TestProcess staying(file_);
  Activity before;
  {
    TestProcess ending(file_);
    activity_.follow({staying.pid(), ending.pid()});
    ending.touch();
    before = activity_.read();
  }
  const Activity after = activity_.read();
  expect_no_less(before, after);
  EXPECT_LE(after.mapped + 8_MiB, before.mapped);
  activity_.follow({staying.pid()});
  expect_no_less(after, activity_.read());
  activity_.follow({});
  expect_no_less(after, activity_.read());
}

// A program that creates its mapping again for every batch has none at times.
TEST_F(ProcessActivityTest, KeepsCountingAProcessThatHasNoMappingForAWhile) {
  TestProcess process(file_);
  activity_.follow({process.pid()});
  const Activity before = activity_.read();
  activity_.follow({});
  process.touch();
  activity_.follow({});
  activity_.follow({process.pid()});
  EXPECT_GE(activity_.read().faults, before.faults + 8_MiB / 65536);
  process.end();
  activity_.follow({});
  EXPECT_EQ(activity_.read().mapped, 0u);
}

TEST_F(ProcessActivityTest, IsZeroForAProcessThatHasEndedBefore) {
  TestProcess process(file_);
  const pid_t pid = process.pid();
  process.end();
  activity_.follow({pid});
  EXPECT_EQ(activity_.read().faults, 0u);
}

}  // namespace
}  // namespace evenkeel
