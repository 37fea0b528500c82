// Checks with the kernel's own figures that the budget is kept.
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "evenkeel/guard.h"
#include "guard/test_mapping.h"
#include "tests/forked.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kSlack = 32_MiB;

// All tests share one file. It is dropped from the cache before each test.
class MemoryGuard : public testing::Test {
 protected:
  static void SetUpTestSuite() { file_ = new NumberFile(256_MiB); }
  static void TearDownTestSuite() {
    delete file_;
    file_ = nullptr;
  }
  void SetUp() override {
    drop_file_cache(file_->path());
    if (!file_->can_be_dropped()) GTEST_SKIP() << "this file system keeps its pages (tmpfs)";
  }
  static std::uint64_t words() { return file_->words(); }

  static inline NumberFile* file_ = nullptr;
};

class MemoryGuardEitherWay : public MemoryGuard, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Promised, MemoryGuardEitherWay, testing::Bool());

TEST_P(MemoryGuardEitherWay, CropsStayWithinTheBudget) {
  const TestMapping map(*file_);
  Guard guard({.budget = 64_MiB});
  guard.add(map.guarded(GetParam()));
  PeakMemory peak({file_->fd()});
  EXPECT_EQ(wrong_in_paced_crops(map, words(), 20000, within(*file_, 64_MiB)), 0u);
  peak.stop();
  EXPECT_LE(peak.cached, 64_MiB + kSlack);
  EXPECT_LE(peak.mapped, 64_MiB + kSlack);
  const GuardReport report = guard.report();
  EXPECT_GT(report.bytes_released, 0u);
  EXPECT_LE(report.cached, 64_MiB);
  EXPECT_LE(report.peak_cached, 64_MiB + kSlack);
  EXPECT_GE(report.switches_to_random, 1u);
  EXPECT_TRUE(report.failures.empty()) << report.failures.front();
}

TEST_P(MemoryGuardEitherWay, PagesFetchedAloneStayWithinASmallBudget) {
  const TestMapping map(*file_);
  Guard guard({.budget = 32_MiB, .access = GuardAccess::kRandom});
  guard.add(map.guarded(GetParam()));
  PeakMemory peak({file_->fd()});
  EXPECT_EQ(wrong_in_paced_crops(map, words(), 30000, within(*file_, 32_MiB)), 0u);
  peak.stop();
  EXPECT_LE(peak.cached, 32_MiB + kSlack);
  EXPECT_LE(peak.mapped, 32_MiB + kSlack);
  EXPECT_GT(guard.report().bytes_released, 64_MiB);
}

TEST_P(MemoryGuardEitherWay, AScanStaysWithinTheBudget) {
  const TestMapping map(*file_);
  Guard guard({.budget = 64_MiB});
  guard.add(map.guarded(GetParam()));
  PeakMemory peak({file_->fd()});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(wrong_in_paced_scan(map, words(), within(*file_, 64_MiB)), 0u);
  }
  peak.stop();
  EXPECT_LE(peak.cached, 64_MiB + kSlack);
  EXPECT_LE(peak.mapped, 64_MiB + kSlack);
  EXPECT_GT(guard.report().bytes_released, 320_MiB);
  EXPECT_EQ(guard.report().switches_to_random, 0u);
}

TEST_P(MemoryGuardEitherWay, APrivateMappingStaysWithinTheBudget) {
  const TestMapping map(*file_, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  Guard guard({.budget = 64_MiB});
  guard.add(map.guarded(GetParam()));
  PeakMemory peak({file_->fd()});
  EXPECT_EQ(wrong_in_paced_scan(map, words(), within(*file_, 64_MiB)), 0u);
  peak.stop();
  EXPECT_LE(peak.cached, 64_MiB + kSlack);
  EXPECT_LE(peak.mapped, 64_MiB + kSlack);
}

TEST_F(MemoryGuard, SeveralMappingsShareTheBudget) {
  const NumberFile other(128_MiB);
  const TestMapping one(*file_), two(other);
  Guard guard({.budget = 48_MiB});
  guard.add(one.guarded(true));
  guard.add(two.guarded(true));
  PeakMemory peak({file_->fd(), other.fd()});
  const MayGoOn both_within = [&] { return file_->cached() + other.cached() <= 48_MiB + kAhead; };
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(wrong_in_paced_scan(one, words(), both_within), 0u);
    EXPECT_EQ(wrong_in_paced_crops(two, other.words(), 2000, both_within), 0u);
  }
  peak.stop();
  EXPECT_LE(peak.cached, 48_MiB + kSlack);
  EXPECT_LE(peak.mapped, 48_MiB + kSlack);
}

TEST_F(MemoryGuard, AFileThatFitsIsLeftAlone) {
  const NumberFile small(64_MiB);
  const TestMapping map(small);
  Guard guard({.budget = 64_MiB});
  guard.add(map.guarded(true));
  EXPECT_EQ(wrong_in_crops(map, small.words(), 2000), 0u);
  EXPECT_EQ(wrong_in_paced_scan(map, small.words()), 0u);
  const GuardReport report = guard.report();
  EXPECT_EQ(report.bytes_released, 0u);
  EXPECT_EQ(report.switches_to_random, 0u);
  EXPECT_EQ(report.looks, 1u);       // made by report()
  EXPECT_GT(report.cached, 63_MiB);  // the kernel may have evicted a page, the guard has not
  EXPECT_LE(report.cached, 64_MiB);
  EXPECT_GT(small.cached(), 63_MiB);
}

TEST_F(MemoryGuard, KeepingTheCacheBoundsResidentPagesAlone) {
  const TestMapping map(*file_);
  Guard guard({.budget = 64_MiB, .keep_cache = true});
  guard.add(map.guarded(true));
  PeakMemory peak({file_->fd()});
  EXPECT_EQ(wrong_in_paced_scan(map, words(), resident_within(64_MiB)), 0u);
  peak.stop();
  EXPECT_LE(peak.mapped, 64_MiB + kSlack);
  EXPECT_GT(guard.report().bytes_released, 128_MiB);
  EXPECT_GT(file_->cached(), 192_MiB);
}

TEST_F(MemoryGuard, PagesResidentWhenAddedCountToo) {
  for (const bool keep : {false, true}) {
    const TestMapping map(*file_);
    EXPECT_EQ(wrong_in_paced_scan(map, words()), 0u);
    Guard guard({.budget = 64_MiB, .keep_cache = keep});
    const std::uint64_t before = process_memory().file;
    guard.add(map.guarded(true));
    EXPECT_TRUE(until([&] { return process_memory().file + 128_MiB < before; },
                      [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }))
        << keep;
  }
}

TEST_F(MemoryGuard, AScanAfterCropsTurnsReadaheadOnAgain) {
  const TestMapping map(*file_);
  Guard guard({.budget = 64_MiB});
  guard.add(map.guarded(true));
  EXPECT_TRUE(until([&] { return guard.report().switches_to_random == 1; },
                    [&] { wrong_in_crops(map, words(), 100); }));
  EXPECT_TRUE(until([&] { return guard.report().switches_to_readahead >= 1; },
                    [&] { wrong_in_paced_scan(map, words(), within(*file_, 64_MiB)); }));
}

TEST_F(MemoryGuard, WithAccessLeaveReadaheadIsNotChanged) {
  const TestMapping map(*file_);
  Guard guard({.budget = 64_MiB, .access = GuardAccess::kLeave});
  guard.add(map.guarded(true));
  EXPECT_EQ(wrong_in_crops(map, words(), 500), 0u);
  EXPECT_EQ(guard.report().switches_to_random, 0u);
}

TEST_F(MemoryGuard, RandomFromTheStartFetchesOnlyTouchedPages) {
  const auto before = disk_bytes_read();
  if (!before) GTEST_SKIP() << "this kernel does not count bytes read";
  const TestMapping map(*file_);
  Guard guard({.budget = 64_MiB, .access = GuardAccess::kRandom});
  guard.add(map.guarded(true));
  const std::uint64_t start = *disk_bytes_read();
  EXPECT_EQ(wrong_in_crops(map, words(), 1000), 0u);
  EXPECT_LE(*disk_bytes_read() - start, 1000 * 4 * sys::page_size());
}

TEST_F(MemoryGuard, WrittenPagesStayWithinTheBudgetToo) {
  const NumberFile file(256_MiB);
  const TestMapping map(file, PROT_READ | PROT_WRITE);
  Guard guard({.budget = 64_MiB});
  guard.add(map.guarded(true));
  for (std::uint64_t word = 0; word < file.words(); ++word) map[word] = ~word;
  std::uint64_t wrong = 0;
  for (std::uint64_t word = 0; word < file.words(); ++word) wrong += map[word] != ~word;
  EXPECT_EQ(wrong, 0u);
  // The peak depends on the speed of the disk. In the end, memory is within the budget.
  EXPECT_TRUE(until([&] { return file.cached() <= 64_MiB; },
                    [&] {
                      EXPECT_EQ(map[0], ~std::uint64_t{0});
                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    }));
}

// Pages over holes come by readahead, without a read from the disk.
struct Writing {
  const char* name;
  bool sparse, is_private, shuffled;
};
class MemoryGuardOfAWriter : public MemoryGuard, public testing::WithParamInterface<Writing> {};
INSTANTIATE_TEST_SUITE_P(Writes, MemoryGuardOfAWriter,
                         testing::Values(Writing{"HolesShuffled", true, false, true},
                                         Writing{"HolesInOrder", true, false, false},
                                         Writing{"DataInOrder", false, false, false},
                                         Writing{"PrivateHolesShuffled", true, true, true},
                                         Writing{"PrivateHolesInOrder", true, true, false}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(MemoryGuardOfAWriter, StaysWithinTheBudgetAndItsSlack) {
  const Writing& how = GetParam();
  const NumberFile file(192_MiB, how.sparse);
  drop_file_cache(file.path());
  const TestMapping map(file, PROT_READ | PROT_WRITE, how.is_private ? MAP_PRIVATE : MAP_SHARED);
  Guard guard({.budget = 16_MiB});
  guard.add(map.guarded(true));
  PeakMemory peak({file.fd()});
  write_paced(map, file.words(), how.shuffled, within(file, 16_MiB));
  peak.stop();
  EXPECT_LE(peak.cached, 16_MiB + kSlack);
  const GuardReport report = guard.report();
  EXPECT_LE(report.peak_cached, 16_MiB + kSlack);
  EXPECT_TRUE(report.failures.empty()) << report.failures.front();
  std::uint64_t wrong = 0;
  for (std::uint64_t word = 0; word < file.words(); word += 64) wrong += map[word] != ~word;
  EXPECT_EQ(wrong, 0u);
}

// Memory that is filled faster than it can be released is reported.
TEST_F(MemoryGuard, AnExceededBudgetIsReportedAsAFailure) {
  const TestMapping map(*file_);
  Guard guard({.budget = 4_MiB, .access = GuardAccess::kLeave});
  guard.add(map.guarded(true));
  EXPECT_TRUE(
      until([&] { return guard.report().peak_cached > 4_MiB + kSlack; },
            [&] { ASSERT_EQ(::madvise(map.words(), file_->bytes(), MADV_POPULATE_READ), 0); }));
  const std::vector<std::string> failures = guard.report().failures;
  ASSERT_FALSE(failures.empty());
  EXPECT_NE(failures.back().find("the budget of 4 MiB was exceeded"), std::string::npos);
}

TEST_F(MemoryGuard, AFileThatIsReadAgainAndAgainIsFetchedSeveralTimes) {
  const TestMapping map(*file_);
  Guard guard({.budget = 32_MiB});
  guard.add(map.guarded(true));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(wrong_in_paced_scan(map, words(), within(*file_, 32_MiB)), 0u);
  }
  const GuardReport report = guard.report();
  EXPECT_EQ(report.file_bytes, 256_MiB);
  EXPECT_GE(report.bytes_fetched, 2 * 256_MiB);
}

class MemoryGuardOfAStranger : public MemoryGuard, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(MayReadItsOwnPageTables, MemoryGuardOfAStranger, testing::Bool());

// The page cache of another user's file (mode 0644) cannot be counted. It is guarded all the same,
// even by a process that may not read its own page tables.
TEST_P(MemoryGuardOfAStranger, TheFileIsGuardedByTheBytesThatTheProcessReads) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const auto guarded = [&]() -> std::string {
    if (!become_nobody()) return "still root";
    ::prctl(PR_SET_DUMPABLE, GetParam() ? 1 : 0);
    const Fd own = open_readable(file_->path());
    const TestMapping map(*file_);
    Guard guard({.budget = 64_MiB});
    GuardMapping mapping = map.guarded(false);
    mapping.fd = own.get();
    try {
      guard.add(mapping);
      return "accepted without the promise";
    } catch (const Error&) {
    }
    mapping.removed_before_unmap = true;
    guard.add(mapping);
    const std::uint64_t before = process_memory().file;
    // The guard may have to wait for a processor, and the kernel reads ahead meanwhile.
    const MayGoOn both = [resident = resident_within(64_MiB), cached = within(*file_, 64_MiB)] {
      return resident() && cached();
    };
    const std::uint64_t wrong =
        wrong_in_paced_scan(map, words(), both) + wrong_in_paced_crops(map, words(), 3000, both);
    const GuardReport report = guard.report();
    std::string all;
    if (wrong != 0) all += "wrong\n";
    if (report.bytes_released < 128_MiB) all += "released too little\n";
    if (process_memory().file > before + 64_MiB + kSlack) all += "resident\n";
    if (report.switches_to_random == 0) all += "not switched to random\n";
    if (!all.empty()) all += "after " + std::to_string(report.looks) + " looks\n";
    for (const std::string& failure : report.failures) all += failure + "\n";
    return all;
  };
  drop_file_cache(file_->path());
  PeakMemory peak({file_->fd()});
  const std::string said = in_child(guarded);
  peak.stop();
  EXPECT_TRUE(said.starts_with("mapping at")) << said;
  EXPECT_NE(said.find("cannot be counted (this user neither owns the file"), std::string::npos)
      << said;
  EXPECT_LE(peak.cached, 64_MiB + kSlack);
}

}  // namespace
}  // namespace evenkeel
