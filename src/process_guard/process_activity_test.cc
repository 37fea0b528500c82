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
  ProcessActivity signs_;
};

TEST_F(ProcessActivityTest, OfNobodyAreZero) {
  const Activity signs = signs_.read();
  EXPECT_EQ(signs.faults + signs.read_bytes + signs.mapped + signs.major_faults, 0u);
}

TEST_F(ProcessActivityTest, CountWhatIsDoneFromNowOn) {
  TestProcess process(file_);
  signs_.follow({process.pid()});
  const Activity before = signs_.read();
  EXPECT_EQ(before.read_bytes, 0u);
  process.touch();
  const Activity after = signs_.read();
  EXPECT_GT(after.faults, before.faults);
  EXPECT_GE(after.mapped, before.mapped + 8_MiB);
  if (file_.can_be_dropped()) {
    EXPECT_GE(after.read_bytes, 8_MiB);
    EXPECT_GT(after.major_faults, 0u);
  }
}

TEST_F(ProcessActivityTest, AddUp) {
  TestProcess one(file_), two(file_);
  signs_.follow({one.pid(), two.pid()});
  const std::uint64_t before = signs_.read().mapped;
  one.touch();
  two.touch();
  EXPECT_GE(signs_.read().mapped, before + 16_MiB);
}

TEST_F(ProcessActivityTest, KeepWhatAnEndedProcessDidButNotWhatItHadMapped) {
  TestProcess staying(file_);
  Activity before;
  {
    TestProcess ending(file_);
    signs_.follow({staying.pid(), ending.pid()});
    ending.touch();
    before = signs_.read();
  }
  const Activity after = signs_.read();
  expect_no_less(before, after);
  EXPECT_LE(after.mapped + 8_MiB, before.mapped);
  signs_.follow({staying.pid()});
  expect_no_less(after, signs_.read());
  signs_.follow({});
  expect_no_less(after, signs_.read());
}

// A program that maps anew for each batch has, at times, no mapping at all.
TEST_F(ProcessActivityTest, GoOnWithAProcessThatHasNoMappingForAWhile) {
  TestProcess process(file_);
  signs_.follow({process.pid()});
  const Activity before = signs_.read();
  signs_.follow({});
  process.touch();
  signs_.follow({});
  signs_.follow({process.pid()});
  EXPECT_GE(signs_.read().faults, before.faults + 8_MiB / 65536);
  process.end();
  signs_.follow({});
  EXPECT_EQ(signs_.read().mapped, 0u);
}

TEST_F(ProcessActivityTest, OfAProcessThatWasNeverThereAreZero) {
  TestProcess process(file_);
  const pid_t pid = process.pid();
  process.end();
  signs_.follow({pid});
  EXPECT_EQ(signs_.read().faults, 0u);
}

}  // namespace
}  // namespace evenkeel
