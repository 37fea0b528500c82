// labels: threads
// No read or write may go wrong, whatever the evictor does meanwhile. Budgets are far too small for
// the mappings, so that the evictor is always busy.
#include "evenkeel/guard.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "guard/test_mapping.h"
#include "tests/forked.h"
#include "tests/sanitizers.h"

namespace evenkeel {
namespace {

constexpr GuardOptions kSmall{.budget = 4_MiB};

bool says(const GuardReport& report, const std::string& words) {
  return std::ranges::any_of(report.failures, [&](const std::string& one) {
    return one.find(words) != std::string::npos;
  });
}

std::uint64_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator begin(folder), end;
  return static_cast<std::uint64_t>(std::distance(begin, end));
}

std::uint64_t threads_of_process() { return entries_of("/proc/self/task"); }

// Without any guard. The entry of a thread goes soon after the join, also of one that an earlier
// test has ended.
std::uint64_t threads_without_guards() {
  std::thread([] {}).join();  // ThreadSanitizer starts a thread of its own with the first
  constexpr std::uint64_t kThreads = kUnderTsan ? 2 : 1;
  EXPECT_TRUE(until([] { return threads_of_process() == kThreads; }, [] {}))
      << threads_of_process();
  return kThreads;
}

TEST(Guard, ATinyBudgetIsRefused) { EXPECT_THROW(Guard({.budget = 1_MiB}), Error); }

TEST(Guard, WithoutMappingsItDoesNothing) {
  Guard guard(kSmall);
  int something = 0;
  EXPECT_FALSE(guard.remove(&something));
  const GuardReport report = guard.report();
  EXPECT_EQ(report.budget, 4_MiB);
  EXPECT_EQ(report.mappings, 0u);
  EXPECT_EQ(report.bytes_released, 0u);
  EXPECT_TRUE(report.failures.empty());
}

// While everything fits, the evictor sleeps. Adding more of the same file must wake it.
TEST(Guard, APartThatIsAddedToAFileThatFittedIsGuarded) {
  const NumberFile file(32_MiB);
  if (!file.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  const TestMapping map(file);
  Guard guard({.budget = 8_MiB, .access = GuardAccess::kLeave});
  GuardMapping first = map.guarded(true), rest = first;
  first.length = 4_MiB;
  rest.address = map.words() + 4_MiB / 8;
  rest.length = 28_MiB;
  rest.file_offset = 4_MiB;
  guard.add(first);
  // After its first step the evictor has nothing to do until the next add().
  ASSERT_TRUE(until([&] { return guard.report().cpu_seconds > 0; }, [] {}));
  guard.add(rest);
  EXPECT_TRUE(until([&] { return guard.report().bytes_released >= 32_MiB; },
                    [&] { EXPECT_EQ(wrong_in_scan(map, file.words()), 0u); }));
}

// Pages that were cached before are released. They do not mean that the budget was exceeded.
TEST(Guard, PagesCachedBeforeAreNotInTheGuardedPeak) {
  const NumberFile file(32_MiB);
  if (!file.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  const TestMapping map(file);
  EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
  Guard guard({.budget = 8_MiB, .access = GuardAccess::kLeave});
  guard.add(map.guarded(true));
  ASSERT_TRUE(until([&] { return guard.report().cached <= 8_MiB; }, [] {}));
  const GuardReport report = guard.report();
  EXPECT_GT(report.peak_cached, 31_MiB);  // the kernel may have evicted a page before
  EXPECT_LE(report.peak_cached, 32_MiB);
  EXPECT_LE(report.guarded_peak, 8_MiB);
  EXPECT_FALSE(says(report, "was exceeded"));
}

TEST(Guard, PagesResidentBeforeAreNotInTheGuardedPeak) {
  const NumberFile file(64_MiB);
  if (!file.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  const TestMapping map(file);
  EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
  Guard guard({.budget = 8_MiB, .keep_cache = true, .access = GuardAccess::kLeave});
  guard.add(map.guarded(true));
  // The kernel may have evicted a page before, which is then not the guard's to release.
  ASSERT_TRUE(until([&] { return guard.report().bytes_released > 63_MiB; }, [] {}));
  const GuardReport report = guard.report();
  EXPECT_GT(report.peak_cached, 63_MiB);
  EXPECT_LE(report.guarded_peak, 8_MiB);
  EXPECT_FALSE(says(report, "was exceeded"));
}

TEST(Guard, AFileThatFitsIsReportedWhenResidentPagesAreCounted) {
  const NumberFile file(4_MiB);
  if (!file.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  const TestMapping map(file);
  Guard guard({.budget = 8_MiB, .keep_cache = true, .access = GuardAccess::kLeave});
  guard.add(map.guarded(true));
  EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
  const GuardReport report = guard.report();
  EXPECT_GT(report.peak_cached, 3_MiB);
  EXPECT_LE(report.peak_cached, 4_MiB);
  EXPECT_EQ(report.bytes_released, 0u);
}

class GuardEitherWay : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Promised, GuardEitherWay, testing::Bool());

TEST_P(GuardEitherWay, ReadsAreRightWhilePagesAreReleased) {
  const NumberFile file(32_MiB);
  const TestMapping map(file);
  Guard guard(kSmall);
  guard.add(map.guarded(GetParam()));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
    EXPECT_EQ(wrong_in_crops(map, file.words(), 300), 0u);
  }
  if (file.can_be_dropped()) {
    EXPECT_TRUE(until([&] { return guard.report().bytes_released > 32_MiB; },
                      [&] { wrong_in_scan(map, file.words()); }));
  }
  EXPECT_TRUE(guard.remove(map.words()));
  EXPECT_FALSE(guard.remove(map.words()));
}

TEST_P(GuardEitherWay, WrittenBytesAreNeverLost) {
  const NumberFile file(32_MiB);
  TestMapping map(file, PROT_READ | PROT_WRITE);
  std::vector<std::uint64_t> wanted(file.words());
  for (std::uint64_t word = 0; word < wanted.size(); ++word) wanted[word] = word;
  Guard guard(kSmall);
  guard.add(map.guarded(GetParam()));
  std::mt19937_64 draw(5);
  const auto write_some = [&] {
    for (int i = 0; i < 3000; ++i) {
      const std::uint64_t word = draw() % wanted.size();
      map[word] = wanted[word] = draw();
    }
  };
  for (int round = 0; round < 10; ++round) write_some();
  if (file.can_be_dropped()) {
    EXPECT_TRUE(until([&] { return guard.report().bytes_released > 48_MiB; }, write_some));
  }
  std::uint64_t wrong = 0;
  for (std::uint64_t word = 0; word < wanted.size(); ++word) wrong += map[word] != wanted[word];
  EXPECT_EQ(wrong, 0u);
  guard.remove(map.words());
  map.unmap();
  ::fsync(file.fd());
  drop_file_cache(file.path());
  std::vector<std::uint64_t> on_disk(file.words());
  EXPECT_EQ(read_upto(file.fd(), 0, std::as_writable_bytes(std::span(on_disk)), file.path()),
            file.bytes());
  EXPECT_TRUE(on_disk == wanted);
}

TEST_P(GuardEitherWay, ChangesOfAPrivateMappingStay) {
  const NumberFile file(32_MiB);
  const TestMapping map(file, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  std::map<std::uint64_t, std::uint64_t> changed;
  Guard guard(kSmall);
  guard.add(map.guarded(GetParam()));
  std::mt19937_64 draw(5);
  std::uint64_t wrong = 0;
  const auto use = [&] {
    for (int i = 0; i < 200; ++i) {
      const std::uint64_t word = draw() % (file.words() / 2);  // the other half is not changed
      map[word] = changed[word] = draw();
    }
    for (const auto& [word, value] : changed) wrong += map[word] != value;
    for (std::uint64_t word = file.words() / 2; word < file.words(); word += 64) {
      wrong += map[word] != word;
    }
  };
  for (int round = 0; round < 5; ++round) use();
  if (file.can_be_dropped()) {
    EXPECT_TRUE(until([&] { return guard.report().bytes_released > 8_MiB; }, use));
  }
  EXPECT_EQ(wrong, 0u);
}

TEST_P(GuardEitherWay, AMappingThatIsUnmappedWithoutRemoveIsForgotten) {
  const NumberFile file(32_MiB);
  TestMapping map(file);
  const GuardMapping guarded = map.guarded(GetParam());
  Guard guard(kSmall);
  guard.add(guarded);
  void* const address = map.words();
  map.unmap();  // breaks the promise
  auto* const other =
      static_cast<std::uint64_t*>(::mmap(address, file.bytes(), PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
  ASSERT_EQ(other, address);
  std::fill_n(other, file.words(), 42);
  // The file fills the cache, so the evictor has to release pages.
  std::vector<std::byte> buffer(1_MiB);
  EXPECT_TRUE(until([&] { return guard.report().mappings == 0; },
                    [&] {
                      for (std::uint64_t at = 0; at < file.bytes(); at += buffer.size()) {
                        read_upto(file.fd(), at, buffer, file.path());
                      }
                    }));
  EXPECT_EQ(std::count(other, other + file.words(), 42u),
            static_cast<std::ptrdiff_t>(file.words()));
  EXPECT_TRUE(says(guard.report(), "without remove()"));
  EXPECT_FALSE(guard.remove(address));
  ::munmap(other, file.bytes());
}

// Without the promise, a mapping may be replaced at any moment and without notice.
TEST(Guard, MemoryThatTakesThePlaceWhileTheEvictorWorksKeepsItsContents) {
  const NumberFile file(16_MiB);
  Guard guard(kSmall);
  std::uint64_t wrong = 0;
  for (int round = 0; round < 40; ++round) {
    TestMapping map(file);
    guard.add(map.guarded(false));
    wrong += wrong_in_scan(map, file.words());  // now the evictor is busy
    void* const address = map.words();
    ASSERT_EQ(::mmap(address, file.bytes(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              address);
    for (std::uint64_t word = 0; word < file.words(); ++word) map[word] = ~word;
    for (std::uint64_t word = 0; word < file.words(); ++word) wrong += map[word] != ~word;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(Guard, AMovedMappingReadsRightAndIsForgotten) {
  const NumberFile file(32_MiB);
  const TestMapping map(file);
  Guard guard(kSmall);
  guard.add(map.guarded(false));
  EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
  void* const place = ::mmap(nullptr, file.bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const moved = static_cast<std::uint64_t*>(
      ::mremap(map.words(), file.bytes(), file.bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, place));
  ASSERT_EQ(moved, place);
  std::uint64_t wrong = 0;
  const auto scan = [&] {
    for (std::uint64_t word = 0; word < file.words(); ++word) wrong += moved[word] != word;
  };
  EXPECT_TRUE(until([&] { return guard.report().mappings == 0; }, scan));
  EXPECT_EQ(wrong, 0u);
  ::munmap(moved, file.bytes());
}

TEST(Guard, ATruncatedFileDoesNotStopTheEvictor) {
  const NumberFile file(32_MiB);
  const TestMapping map(file);
  Guard guard(kSmall);
  guard.add(map.guarded(true));
  EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
  ASSERT_EQ(::ftruncate(file.fd(), 1_MiB), 0);
  EXPECT_EQ(wrong_in_crops(map, 1_MiB / 8, 10), 0u);
  // The evictor goes on: when the file grows again, its pages are released.
  ASSERT_EQ(::ftruncate(file.fd(), 32_MiB), 0);
  const std::uint64_t before = guard.report().bytes_released;
  EXPECT_TRUE(until([&] { return guard.report().bytes_released > before + 8_MiB; },
                    [&] { wrong_in_scan(map, file.words()); }));
  EXPECT_TRUE(guard.remove(map.words()));
}

TEST(Guard, AnAddressMayBeAddedAgain) {
  const NumberFile file(8_MiB), other(8_MiB);
  Guard guard(kSmall);
  const TestMapping map(file);
  guard.add(map.guarded(true));
  ASSERT_EQ(::mmap(map.words(), file.bytes(), PROT_READ, MAP_SHARED | MAP_FIXED, other.fd(), 0),
            map.words());
  GuardMapping again = map.guarded(true);
  again.fd = other.fd();
  guard.add(again);
  EXPECT_EQ(guard.report().mappings, 1u);
  EXPECT_TRUE(guard.remove(map.words()));
}

TEST(Guard, TheDescriptorMayBeClosed) {
  const NumberFile file(16_MiB);
  const TestMapping map(file);
  Guard guard(kSmall);
  {
    const Fd own = open_readable(file.path());
    GuardMapping mapping = map.guarded(true);
    mapping.fd = own.get();
    guard.add(mapping);
  }
  EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);
  EXPECT_TRUE(guard.report().failures.empty() || !file.can_be_dropped());
}

TEST(Guard, ThreadsAddUseAndRemoveAtOnce) {
  const NumberFile file(16_MiB);
  Guard guard(kSmall);
  std::atomic<std::uint64_t> wrong = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      for (int round = 0; round < 15; ++round) {
        const TestMapping map(file);
        guard.add(map.guarded(true));
        wrong += wrong_in_crops(map, file.words(), 200, seed);
        if (round % 4 == 0) guard.report();
        if (!guard.remove(map.words())) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(guard.report().mappings, 0u);
}

TEST(Guard, AChildOfForkStartsWithoutMappingsAndTheParentGoesOn) {
  if (kUnderTsan || kUnderAsan) GTEST_SKIP() << "the sanitizer does not support threads after fork";
  const NumberFile file(32_MiB);
  const TestMapping map(file);
  Guard guard(kSmall);
  guard.add(map.guarded(true));
  for (int round = 0; round < 8; ++round) {
    EXPECT_EQ(wrong_in_crops(map, file.words(), 100), 0u);  // forks while the evictor is busy
    const std::string said = in_child([&] {
      std::string words = guard.remove(map.words()) ? "had it; " : "fresh; ";
      words += std::to_string(guard.report().mappings) + " mappings; ";
      words += std::to_string(wrong_in_crops(map, file.words(), 20)) + " wrong; ";
      guard.add(map.guarded(true));
      words += std::to_string(wrong_in_scan(map, file.words())) + " wrong; ";
      words += std::to_string(guard.report().mappings) + " mapping; ";
      return words + (guard.remove(map.words()) ? "removed" : "lost");
    });
    ASSERT_EQ(said, "fresh; 0 mappings; 0 wrong; 0 wrong; 1 mapping; removed");
  }
  EXPECT_EQ(guard.report().mappings, 1u);
  EXPECT_TRUE(guard.remove(map.words()));
}

TEST(Guard, AChildMayDestroyTheParentsGuard) {
  if (kUnderTsan || kUnderAsan) GTEST_SKIP() << "the sanitizer does not support threads after fork";
  const NumberFile file(8_MiB);
  const TestMapping map(file);
  auto guard = std::make_unique<Guard>(kSmall);
  guard->add(map.guarded(true));
  EXPECT_EQ(in_child([&] {
              guard.reset();
              return "gone, " + std::to_string(wrong_in_scan(map, file.words())) + " wrong";
            }),
            "gone, 0 wrong");
  EXPECT_TRUE(guard->remove(map.words()));
}

TEST(Guard, RemovingTheLastMappingEndsTheThread) {
  const auto threads = threads_of_process;
  const NumberFile file(8_MiB);
  const TestMapping one(file), two(file);
  Guard guard(kSmall);
  const std::uint64_t before = threads_without_guards();
  guard.add(one.guarded(true));
  guard.add(two.guarded(true));
  EXPECT_EQ(threads(), before + 1);
  guard.remove(one.words());
  EXPECT_EQ(threads(), before + 1);
  guard.remove(two.words());
  EXPECT_TRUE(
      until([&] { return threads() == before; }, [] {}));  // the entry goes soon after the join
  guard.add(one.guarded(true));
  EXPECT_EQ(threads(), before + 1);
}

TEST(Guard, AllGuardsOfAProcessShareOneThread) {
  const NumberFile file(8_MiB);
  const TestMapping one(file), two(file);
  const std::uint64_t before = threads_without_guards();
  Guard first(kSmall), second(kSmall);
  first.add(one.guarded(true));
  second.add(two.guarded(true));
  EXPECT_EQ(threads_of_process(), before + 1);
  // Both release pages.
  for (Guard* guard : {&first, &second}) {
    if (!file.can_be_dropped()) break;
    EXPECT_TRUE(until([&] { return guard->report().bytes_released > 8_MiB; },
                      [&] { wrong_in_scan(guard == &first ? one : two, file.words()); }));
  }
  first.remove(one.words());
  EXPECT_EQ(threads_of_process(), before + 1);
  second.remove(two.words());
  EXPECT_TRUE(until([&] { return threads_of_process() == before; }, [] {}));
}

// With closed_after_remove the guard needs no descriptor of its own, even after the first of two
// mappings is removed.
TEST(Guard, ADescriptorThatStaysOpenIsNotDuplicated) {
  const NumberFile file(16_MiB);
  const TestMapping one(file), two(file);
  Guard guard(kSmall);
  const auto descriptors = [] { return entries_of("/proc/self/fd"); };
  Fd first = open_readable(file.path());
  const Fd second = open_readable(file.path());
  guard.report();  // opens the descriptors that all guards share
  GuardMapping mapping = one.guarded(true), other = two.guarded(true);
  mapping.closed_after_remove = other.closed_after_remove = true;
  mapping.fd = first.get();
  other.fd = second.get();
  guard.add(mapping);
  const std::uint64_t open = descriptors();
  guard.add(other);
  EXPECT_EQ(descriptors(), open);
  EXPECT_TRUE(guard.remove(one.words()));
  first = Fd();
  if (file.can_be_dropped()) {
    const std::uint64_t before = guard.report().bytes_released;
    EXPECT_TRUE(until([&] { return guard.report().bytes_released > before + 16_MiB; },
                      [&] { EXPECT_EQ(wrong_in_scan(two, file.words()), 0u); }));
  }
  EXPECT_TRUE(guard.remove(two.words()));
}

TEST(Guard, AFileInMemoryIsAcceptedAndReported) {
  const Fd memory(::memfd_create("evenkeel", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(memory.get(), 16_MiB), 0);
  void* map = ::mmap(nullptr, 16_MiB, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  ASSERT_NE(map, MAP_FAILED);
  Guard guard(kSmall);
  guard.add({.address = map, .length = 16_MiB, .fd = memory.get(), .removed_before_unmap = true});
  std::fill_n(static_cast<std::uint64_t*>(map), 2_MiB, 7);
  EXPECT_TRUE(says(guard.report(), "lies in memory"));
  EXPECT_EQ(guard.report().bytes_released, 0u);
  EXPECT_EQ(
      std::count(static_cast<std::uint64_t*>(map), static_cast<std::uint64_t*>(map) + 2_MiB, 7u),
      static_cast<std::ptrdiff_t>(2_MiB));
  EXPECT_TRUE(guard.remove(map));
  ::munmap(map, 16_MiB);
}

}  // namespace
}  // namespace evenkeel
