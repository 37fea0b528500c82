#include "process_guard/proc_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "process_guard/process_guard.h"
#include "process_guard/test_process.h"

namespace evenkeel {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

constexpr std::uint64_t kMappedBytes = 16_MiB;

// Whether this user may release pages of other processes. Usually only root may.
bool may_act() {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  bool may = true;
  try {
    ProcSource source(child, 1_MiB);
  } catch (const Error&) {
    may = false;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return may;
}

class ProcSourceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!may_act()) GTEST_SKIP() << "no CAP_SYS_NICE, or a kernel without process_madvise";
  }
  const NumberFile file_{kMappedBytes};
  TestProcess process_{file_};
};

TEST_F(ProcSourceTest, SeesTheMapping) {
  ProcSource source(process_.pid(), 1_MiB);
  const auto seen = source.observe();
  ASSERT_EQ(seen.size(), 1u);  // neither this program nor libraries
  struct stat status;
  ASSERT_EQ(::fstat(file_.fd(), &status), 0);
  EXPECT_EQ(seen[0].pid, process_.pid());
  EXPECT_EQ(seen[0].range, process_.range(file_));
  EXPECT_EQ(seen[0].offset, 0u);
  EXPECT_EQ(seen[0].device, status.st_dev);
  EXPECT_EQ(seen[0].inode, status.st_ino);
  EXPECT_EQ(source.path(seen[0]), file_.path());
}

TEST_F(ProcSourceTest, SeesThatItIsUnmappedAndMappedAgain) {
  ProcSource source(process_.pid(), 1_MiB);
  ASSERT_EQ(source.observe().size(), 1u);
  process_.unmap();
  EXPECT_EQ(source.observe().size(), 0u);
  process_.map_again();
  EXPECT_EQ(source.observe().size(), 1u);
  process_.end();
  EXPECT_EQ(source.observe().size(), 0u);
}

TEST_F(ProcSourceTest, LeavesSmallMappingsAlone) {
  ProcSource source(process_.pid(), kMappedBytes + 1);
  EXPECT_EQ(source.observe().size(), 0u);
}

TEST_F(ProcSourceTest, LeavesProgramsAndLibrariesAlone) {
  ProcSource source(process_.pid(), 4096);
  for (const ObservedMapping& one : source.observe()) {
    const std::string path = source.path(one);
    EXPECT_TRUE(path.find(".so") == std::string::npos) << path;
    EXPECT_TRUE(path.find("evenkeel_tests") == std::string::npos) << path;
  }
}

TEST_F(ProcSourceTest, LeavesAFileThatIsMappedAsAProgramAlone) {
  TestProcess program(file_, {.protection = PROT_READ | PROT_EXEC});
  ProcSource source(program.pid(), 1_MiB);
  EXPECT_EQ(source.observe().size(), 0u);
}

TEST_F(ProcSourceTest, LetsGoOfResidentPages) {
  ProcSource source(process_.pid(), 1_MiB);
  const auto seen = source.observe();
  ASSERT_EQ(seen.size(), 1u);
  const auto mapping = source.make_guarded(seen[0], true);
  EXPECT_THAT(mapping->name(), HasSubstr("mapped by process " + std::to_string(process_.pid())));
  EXPECT_EQ(process_.touch(), 0u);
  AccessSample before, after;
  ASSERT_TRUE(mapping->count_resident(seen[0].range, before));
  EXPECT_EQ(before.resident, kMappedBytes / sys::page_size());
  EXPECT_EQ(mapping->let_go(seen[0].range), 0);
  ASSERT_TRUE(mapping->count_resident(seen[0].range, after));
  if (file_.can_be_dropped()) {
    EXPECT_LT(after.resident, before.resident / 10);
  }
  EXPECT_EQ(process_.touch(), 0u);
}

// One call of process_madvise acts on less than 2 GiB.
TEST_F(ProcSourceTest, LetsGoOfTheEndOfALargeMapping) {
  const NumberFile large(2_GiB + TestProcess::kEndBytes, true);
  if (!large.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  TestProcess process(large);
  ProcSource source(process.pid(), 1_MiB);
  const auto seen = source.observe();
  ASSERT_EQ(seen.size(), 1u);
  const auto mapping = source.make_guarded(seen[0], true);
  process.touch_end();
  const AddressRange end{seen[0].range.end - TestProcess::kEndBytes, seen[0].range.end};
  AccessSample before, after;
  ASSERT_TRUE(mapping->count_resident(end, before));
  EXPECT_EQ(before.resident, TestProcess::kEndBytes / sys::page_size());
  EXPECT_EQ(mapping->let_go(seen[0].range), 0);
  ASSERT_TRUE(mapping->count_resident(end, after));
  EXPECT_LT(after.resident, before.resident / 10);
}

TEST_F(ProcSourceTest, LettingGoOfAMappingOrProcessThatIsGoneIsNoFailure) {
  ProcSource source(process_.pid(), 1_MiB);
  const auto seen = source.observe();
  ASSERT_EQ(seen.size(), 1u);
  const auto mapping = source.make_guarded(seen[0], true);
  process_.unmap();
  EXPECT_EQ(mapping->let_go(seen[0].range), 0);
  process_.end();
  EXPECT_EQ(mapping->let_go(seen[0].range), 0);
}

TEST_F(ProcSourceTest, AProcessIsKeptWithinTheBudget) {
  if (!file_.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  ProcSource source(process_.pid(), 1_MiB);
  ProcessGuard guard({.guard = {.budget = 4_MiB, .access = GuardAccess::kLeave}, .files = {}},
                     source);
  EXPECT_TRUE(until([&] { return guard.report().bytes_released > 2 * kMappedBytes; },
                    [&] { EXPECT_EQ(process_.touch(), 0u); }));
  EXPECT_EQ(guard.files(), 1u);
  EXPECT_THAT(guard.report().failures, testing::IsEmpty());
}

TEST_F(ProcSourceTest, WaitingCanBeInterrupted) {
  ProcSource source(process_.pid(), 1_MiB);
  source.interrupt();
  source.wait(std::chrono::hours(1));  // returns at once
}

TEST(ProcSourceErrors, MissingPermissionsAreNamed) {
  const NumberFile file(4_MiB);
  TestProcess process(file, {.as_nobody = ::getuid() == 0});
  const std::string said = in_child([&]() -> std::string {
    if (::getuid() == 0 && !become_nobody()) return "still root";
    ProcSource source(process.pid(), 1_MiB);
    return "no error";
  });
  EXPECT_THAT(said, HasSubstr("CAP_SYS_NICE"));
  EXPECT_THAT(said, HasSubstr("process " + std::to_string(process.pid())));
  EXPECT_THAT(said, HasSubstr("evenkeel guard -- COMMAND"));
  EXPECT_EQ(process.touch(), 0u);
}

TEST(ProcSourceErrors, AProcessThatDoesNotExistIsReported) {
  const NumberFile file(4_MiB);
  TestProcess process(file);
  const pid_t pid = process.pid();
  process.end();
  try {
    ProcSource source(pid, 1_MiB);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("No such process"));
  }
}

}  // namespace
}  // namespace evenkeel
