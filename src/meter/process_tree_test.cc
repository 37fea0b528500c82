#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <thread>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "evenkeel/meter.h"
#include "meter/temp_file.h"
#include "meter/test_child.h"
#include "tests/forked.h"

namespace evenkeel {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using Steps = TestChild::Steps;

constexpr std::uint64_t kPages = 64_MiB / 4096;

// Samples until the tree has this many processes: the second look is due only some time after the
// first.
std::optional<TreeMemory> sample_with(ProcessTree& tree, std::uint32_t processes) {
  std::optional<TreeMemory> now;
  for (int tries = 0; tries < 3000; ++tries) {
    now = tree.sample();
    if (!now || now->processes == processes) return now;
    ::usleep(1000);
  }
  ADD_FAILURE() << "there are " << now->processes << " processes, not " << processes;
  return now;
}

// The kernel counts in batches and may evict pages.
void expect_about(std::uint64_t measured, std::uint64_t wanted) {
  EXPECT_NEAR(static_cast<double>(measured), static_cast<double>(wanted),
              0.125 * static_cast<double>(wanted));
}

// Forks a child of the child, which does `work` and then waits for the end of the test.
pid_t fork_and(const std::function<void()>& work, const Steps& steps) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    steps.tell();
    steps.until_over();
  }
  return child;
}

TEST(ProcessTree, NoSuchProcessIsAnError) {
  try {
    ProcessTree tree(0x3ffffff0);
    FAIL() << "follows a process that does not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kSystem);
    EXPECT_EQ(error.code(), ESRCH);
  }
}

TEST(ProcessTree, ZombieRootIsRefused) {
  TestChild child([](const Steps& steps) { steps.wait(); });
  child.become_zombie();
  EXPECT_THROW(ProcessTree{child.pid()}, Error);
}

TEST(ProcessTree, ZeroIsThisProcess) {
  ProcessTree tree(0);
  EXPECT_THAT(tree.processes(), Contains(::getpid()));
  EXPECT_GT(tree.sample()->memory.anon, 0u);
}

TEST(ProcessTree, RootThatIsAZombieHasEnded) {
  TestChild child([](const Steps& steps) { steps.wait(); });
  ProcessTree tree(child.pid());
  ASSERT_TRUE(tree.sample());
  EXPECT_THAT(tree.processes(), ElementsAre(child.pid()));
  child.become_zombie();
  EXPECT_FALSE(tree.sample());
  child.end();
  EXPECT_FALSE(tree.sample());
  EXPECT_TRUE(tree.processes().empty());
}

TEST(ProcessTree, ZombieChildCountsNothing) {
  TestChild child([](const Steps& steps) {
    const pid_t inner = fork_and([] { touched_pages(8_MiB); }, steps);
    steps.wait();
    ::kill(inner, SIGKILL);
    ::siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(inner), &info, WEXITED | WNOWAIT);
    steps.done();
  });
  ASSERT_TRUE(child.wait());
  ProcessTree tree(child.pid());
  const auto both = tree.sample();
  EXPECT_EQ(both->processes, 2u);
  ASSERT_TRUE(child.step());
  const auto one = tree.sample();
  EXPECT_EQ(one->processes, 1u);
  EXPECT_LT(one->memory.anon + 7_MiB, both->memory.anon);
  EXPECT_GE(one->counters.minor_faults, both->counters.minor_faults);
}

TEST(ProcessTree, ChildrenComeAndGo) {
  TestChild child([](const Steps& steps) {
    for (;;) {
      steps.wait();
      pid_t inner[5];
      for (pid_t& one : inner) one = fork_and([] {}, steps);
      steps.wait();
      for (const pid_t one : inner) {
        ::kill(one, SIGKILL);
        ::waitpid(one, nullptr, 0);
      }
      steps.tell();
    }
  });
  ProcessTree tree(child.pid());
  for (int round = 0; round < 3; ++round) {
    child.go_on();
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(child.wait());
    EXPECT_EQ(sample_with(tree, 6)->processes, 6u);
    EXPECT_EQ(tree.processes().size(), 6u);
    EXPECT_EQ(tree.processes().front(), child.pid());
    ASSERT_TRUE(child.step());
    EXPECT_EQ(tree.sample()->processes, 1u);
  }
}

TEST(ProcessTree, ChildrenOfEveryThreadAreFound) {
  TestChild child([](const Steps& steps) {
    std::thread([&] { fork_and([] {}, steps), steps.until_over(); }).detach();
    steps.until_over();
  });
  ASSERT_TRUE(child.wait());
  ProcessTree tree(child.pid());
  EXPECT_EQ(sample_with(tree, 2)->processes, 2u);
}

TEST(ProcessTree, ReparentedGrandchildIsStillFollowed) {
  TestChild child([](const Steps& steps) {
    const pid_t middle = ::fork();
    if (middle == 0) {
      fork_and([] { touched_pages(16_MiB); }, steps);
      steps.until_over();
    }
    steps.wait();
    ::kill(middle, SIGKILL);
    ::waitpid(middle, nullptr, 0);
    steps.done();
  });
  ASSERT_TRUE(child.wait());
  ProcessTree tree(child.pid());
  ASSERT_EQ(sample_with(tree, 3)->processes, 3u);
  const pid_t grandchild = tree.processes().back();
  ASSERT_TRUE(child.step());
  const auto orphaned = tree.sample();
  EXPECT_EQ(orphaned->processes, 2u);
  EXPECT_GE(orphaned->memory.anon, 16_MiB);
  child.end();  // the root ends, its grandchild goes on
  ASSERT_TRUE(tree.sample());
  EXPECT_THAT(tree.processes(), ElementsAre(grandchild));
  ::kill(grandchild, SIGKILL);
  for (int tries = 0; tries < 5000 && tree.sample(); ++tries) ::usleep(1000);
  EXPECT_FALSE(tree.sample());
}

TEST(MemoryProcessTree, CountersBeginWithTheTree) {
  TestChild child([](const Steps& steps) {
    touched_pages(64_MiB);
    steps.done();
    touched_pages(32_MiB);
    steps.done();
  });
  ASSERT_TRUE(child.wait());
  ProcessTree tree(child.pid());
  EXPECT_LT(tree.sample()->counters.minor_faults, 100u);
  ASSERT_TRUE(child.step());
  const auto counters = tree.sample()->counters;
  expect_about(counters.minor_faults, kPages / 2);
  EXPECT_EQ(counters.disk_read.has_value(), disk_bytes_read().has_value());
}

// The kernel adds the counts of a child to its parent when the parent waits for it.
TEST(MemoryProcessTree, EndedChildStillCountsAndOnlyOnce) {
  TestChild child([](const Steps& steps) {
    steps.wait();
    const pid_t inner = fork_and([] { touched_pages(64_MiB); }, steps);
    steps.wait();
    ::kill(inner, SIGKILL);
    ::waitpid(inner, nullptr, 0);
    steps.done();
  });
  ProcessTree tree(child.pid());
  child.go_on();
  ASSERT_TRUE(child.wait());
  const auto with = sample_with(tree, 2)->counters;
  EXPECT_GE(with.minor_faults, kPages);
  EXPECT_GT(with.cpu_seconds, 0);
  ASSERT_TRUE(child.step());
  for (int i = 0; i < 4; ++i) {
    const auto after = tree.sample()->counters;
    EXPECT_GE(after.minor_faults, with.minor_faults);
    EXPECT_LT(after.minor_faults, with.minor_faults + kPages / 50);
    EXPECT_GE(after.cpu_seconds, with.cpu_seconds);
  }
}

TEST(MemoryProcessTree, ChildThatNobodyWaitsForStillCounts) {
  TestChild child([](const Steps& steps) {
    steps.wait();
    ::signal(SIGCHLD, SIG_IGN);
    const pid_t inner = fork_and([] { touched_pages(64_MiB); }, steps);
    steps.wait();
    ::kill(inner, SIGKILL);
    while (::kill(inner, 0) == 0) ::usleep(1000);
    steps.done();
    touched_pages(32_MiB);
    steps.done();
  });
  ProcessTree tree(child.pid());
  child.go_on();
  ASSERT_TRUE(child.wait());
  const auto with = sample_with(tree, 2)->counters;
  ASSERT_TRUE(child.step());
  for (int i = 0; i < 4; ++i) EXPECT_GE(tree.sample()->counters.minor_faults, with.minor_faults);
  ASSERT_TRUE(child.step());
  expect_about(tree.sample()->counters.minor_faults - with.minor_faults, kPages / 2);
}

TEST(MemoryProcessTree, InheritedCountsOfOneChildAreNotTakenForThoseOfTwo) {
  TestChild child([](const Steps& steps) {
    steps.wait();
    const pid_t first = fork_and([] { touched_pages(64_MiB); }, steps);
    const pid_t second = fork_and([] { touched_pages(64_MiB); }, steps);
    steps.wait();
    ::kill(first, SIGKILL);
    ::waitpid(first, nullptr, 0);
    ::signal(SIGCHLD, SIG_IGN);
    ::kill(second, SIGKILL);
    while (::kill(second, 0) == 0) ::usleep(1000);
    steps.done();
    touched_pages(32_MiB);
    steps.done();
  });
  ProcessTree tree(child.pid());
  child.go_on();
  ASSERT_TRUE(child.wait());
  ASSERT_TRUE(child.wait());
  ASSERT_GE(sample_with(tree, 3)->counters.minor_faults, 2 * kPages);
  ASSERT_TRUE(child.step());
  for (int i = 0; i < 3; ++i) tree.sample();
  ASSERT_TRUE(child.step());
  EXPECT_GE(tree.sample()->counters.minor_faults, 2 * kPages + kPages / 2);
}

TEST(ProcessTree, ShortLivedChildrenCountOnceTheyAreWaitedFor) {
  TestChild child([](const Steps& steps) {
    steps.wait();
    for (int i = 0; i < 4; ++i) {
      const pid_t inner = ::fork();
      if (inner == 0) {
        touched_pages(16_MiB);
        ::_exit(0);
      }
      ::waitpid(inner, nullptr, 0);
    }
    steps.done();
  });
  ProcessTree tree(child.pid());
  ASSERT_TRUE(child.step());  // no sample during their lifetime
  EXPECT_GE(tree.sample()->counters.minor_faults, kPages);
}

TEST(ProcessTree, FinalCountersIncludeAllWork) {
  TestChild child([](const Steps& steps) {
    steps.wait();
    touched_pages(64_MiB);
  });
  ProcessTree tree(child.pid());
  child.go_on();
  ::siginfo_t info;
  ::waitid(P_PID, static_cast<id_t>(child.pid()), &info, WEXITED | WNOWAIT);
  EXPECT_FALSE(tree.sample());
  EXPECT_GE(tree.counters().minor_faults, kPages);
}

TEST(ProcessTree, DiskBytesOfAChildCountOnce) {
  constexpr std::uint64_t kBytes = 16_MiB;
  const TempFile file(kBytes);
  const auto left = drop_file_cache(file.path());
  if (!left || *left != 0) GTEST_SKIP() << "the cache of this file system cannot be dropped";
  if (!disk_bytes_read()) GTEST_SKIP() << "this kernel does not count bytes read";
  TestChild child([&](const Steps& steps) {
    steps.wait();
    const pid_t inner = fork_and([&] { file.read_through(); }, steps);
    steps.wait();
    ::kill(inner, SIGKILL);
    ::waitpid(inner, nullptr, 0);
    steps.done();
  });
  ProcessTree tree(child.pid());
  child.go_on();
  ASSERT_TRUE(child.wait());
  EXPECT_GE(*sample_with(tree, 2)->counters.disk_read, kBytes);
  ASSERT_TRUE(child.step());
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t read = *tree.sample()->counters.disk_read;
    EXPECT_GE(read, kBytes);
    EXPECT_LT(read, kBytes + 4_MiB);
  }
}

// Leaves `count` descriptors for the rest of this process.
void allow_descriptors(int count) {
  std::vector<Fd> free;
  for (int i = 0; i < count; ++i) free.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto end = static_cast<rlim_t>(free.back().get()) + 1;
  const rlimit few{end, end};
  if (::setrlimit(RLIMIT_NOFILE, &few) != 0) throw std::runtime_error("setrlimit");
}

TEST(ProcessTree, ProcessesNotMeasuredForLackOfDescriptorsAreCounted) {
  TestChild child([](const Steps& steps) {
    for (int i = 0; i < 3; ++i) fork_and([] {}, steps);
    steps.until_over();
  });
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(child.wait());
  const auto seen_with = [&](int descriptors) {
    return in_child([&] {
      allow_descriptors(descriptors);
      ProcessTree tree(child.pid());
      const auto now = tree.sample();
      return std::to_string(now->processes) + "+" + std::to_string(now->unmeasured);
    });
  };
  EXPECT_EQ(seen_with(64), "4+0");
  EXPECT_EQ(seen_with(8), "2+2");
  EXPECT_EQ(seen_with(4), "1+1");  // no descriptor is left to look for children
}

TEST(ProcessTree, OtherUsersSeeMemoryButNotPss) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  TestChild child([](const Steps& steps) { steps.wait(); });
  const std::string said = in_child([&]() -> std::string {
    if (!become_nobody()) return "still root";
    ProcessTree tree(child.pid());
    const auto now = tree.sample();
    if (!now || now->memory.rss() == 0) return "no memory";
    if (now->counters.disk_read || disk_bytes_read(child.pid())) return "disk bytes";
    if (tree.pss() || process_pss(child.pid())) return "shares";
    if (!files_in_use(child.pid(), 0).empty()) return "files";
    return "as it should be";
  });
  EXPECT_EQ(said, "as it should be");
}

TEST(MemoryProcessTree, EachKindOfMemoryOfAChildIsCounted) {
  const TempFile file(64_MiB);
  file.read_through();
  TestChild child([&](const Steps& steps) {
    const int fd = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
    steps.done();
    touched_pages(64_MiB);
    steps.done();
    auto* map = static_cast<volatile char*>(::mmap(nullptr, 64_MiB, PROT_READ, MAP_SHARED, fd, 0));
    for (std::size_t at = 0; at < 32_MiB; at += 4096) (void)map[at];
    steps.done();
    for (std::size_t at = 32_MiB; at < 64_MiB; at += 4096) (void)map[at];
    steps.done();
    ::mmap(nullptr, 32_MiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1,
           0);
    steps.done();
  });
  ASSERT_TRUE(child.wait());
  ProcessTree tree(child.pid());
  const ProcessMemory start = tree.sample()->memory;
  ASSERT_TRUE(child.step());
  const ProcessMemory anon = tree.sample()->memory;
  expect_about(anon.anon - start.anon, 64_MiB);
  EXPECT_LT(anon.file - start.file, 1_MiB);
  EXPECT_GE(anon.page_tables - start.page_tables, 64_MiB / 512);
  EXPECT_LE(anon.page_tables - start.page_tables, 64_MiB / 512 + 16_KiB);
  ASSERT_TRUE(child.step());
  const ProcessMemory half = tree.sample()->memory;
  expect_about(half.file - anon.file, 32_MiB);
  ASSERT_TRUE(child.step());
  const ProcessMemory whole = tree.sample()->memory;
  expect_about(whole.file - anon.file, 64_MiB);
  ASSERT_TRUE(child.step());
  const ProcessMemory shared = tree.sample()->memory;
  expect_about(shared.shmem - whole.shmem, 32_MiB);
  expect_about(shared.rss() - start.rss(), 160_MiB);
}

TEST(MemoryProcessTree, TheQuickSampleAgreesWithTheFullOne) {
  const TempFile file(64_MiB);
  file.read_through();
  TestChild child([&](const Steps& steps) {
    const int fd = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
    steps.done();
    touched_pages(64_MiB);
    ::mmap(nullptr, 64_MiB, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    steps.done();
    ::mmap(nullptr, 32_MiB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1,
           0);
    steps.done();
  });
  ASSERT_TRUE(child.wait());
  ProcessTree tree(child.pid());
  const ProcessMemory start = tree.sample()->memory;
  ASSERT_TRUE(child.step());
  const ProcessMemory quick = tree.sample_resident();
  expect_about(quick.anon - start.anon, 64_MiB);
  expect_about(quick.file - start.file, 64_MiB);
  ASSERT_TRUE(child.step());
  const ProcessMemory mixed = tree.sample_resident();
  expect_about(mixed.file - start.file, 96_MiB);  // includes shmem until a full sample
  expect_about(mixed.rss() - start.rss(), 160_MiB);
  const ProcessMemory full = tree.sample()->memory;
  expect_about(full.shmem - start.shmem, 32_MiB);
  const ProcessMemory again = tree.sample_resident();
  EXPECT_EQ(again.shmem, full.shmem);
  expect_about(again.file - start.file, 64_MiB);
}

TEST(ProcessTree, TheQuickSampleCountsNoMemoryOfAZombie) {
  TestChild child([](const Steps& steps) {
    const pid_t grandchild = fork_and([] { touched_pages(64_MiB); }, steps);
    steps.done();
    ::kill(grandchild, SIGKILL);
    siginfo_t ended;
    ::waitid(P_PID, static_cast<id_t>(grandchild), &ended, WEXITED | WNOWAIT);
    steps.done();
  });
  ASSERT_TRUE(child.wait());
  ASSERT_TRUE(child.wait());
  ProcessTree tree(child.pid());
  const auto before = sample_with(tree, 2);
  ASSERT_TRUE(child.step());
  EXPECT_LT(tree.sample_resident().anon + 60_MiB, before->memory.anon);
}

TEST(MemoryProcessTree, GrandchildrenAreInTheSum) {
  TestChild parent([](const Steps& steps) {
    const pid_t middle = ::fork();
    if (middle == 0) {
      fork_and([] { touched_pages(64_MiB); }, steps);
      touched_pages(32_MiB);
      steps.tell();
      steps.until_over();
    }
    steps.wait();
  });
  ASSERT_TRUE(parent.wait());
  ASSERT_TRUE(parent.wait());
  ProcessTree tree(parent.pid());
  const auto now = sample_with(tree, 3);
  const std::uint64_t without = 3 * process_memory(parent.pid()).anon;
  expect_about(now->memory.anon - without, 96_MiB);
  EXPECT_EQ(now->memory.peak_rss, 0u);
}

TEST(MemoryProcessTree, PssCountsSharedPagesOnce) {
  if (!process_pss()) GTEST_SKIP() << "this kernel does not report PSS";
  TestChild child([](const Steps& steps) {
    steps.done();
    auto* shared = static_cast<char*>(::mmap(nullptr, 64_MiB, PROT_READ | PROT_WRITE,
                                             MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    fork_and(
        [&] {
          for (std::size_t at = 0; at < 64_MiB; at += 4096) shared[at] = 2;
        },
        steps);
    steps.wait();
  });
  ASSERT_TRUE(child.wait());
  ProcessTree tree(child.pid());
  const std::uint64_t pss = *tree.pss();
  ASSERT_TRUE(child.step());
  const auto now = sample_with(tree, 2);
  EXPECT_GE(now->memory.shmem, 128_MiB);
  const std::uint64_t growth = *tree.pss() - pss;
  EXPECT_GE(growth, 64_MiB);
  EXPECT_LT(growth, 68_MiB);
}

int wait_for_the_test(void* steps) {
  static_cast<const Steps*>(steps)->done();
  ::_exit(0);
}

TEST(MemoryProcessTree, ChildOfVforkIsNotCountedTwice) {
  TestChild child([](const Steps& steps) {
    touched_pages(64_MiB);
    alignas(16) static char stack[1 << 16];
    // As with vfork, the child uses this process's memory, and this process waits until it ends.
    ::clone(wait_for_the_test, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD,
            const_cast<Steps*>(&steps));
  });
  ASSERT_TRUE(child.wait());
  ProcessTree tree(child.pid());
  const auto now = sample_with(tree, 2);
  if (::syscall(SYS_kcmp, child.pid(), child.pid(), 1, 0, 0) != 0) {
    GTEST_SKIP() << "kcmp is not allowed here";
  }
  expect_about(now->memory.anon, process_memory(child.pid()).anon);
  if (!process_pss(child.pid())) return;
  expect_about(*tree.pss(), *process_pss(child.pid()));
}

TEST(MemoryProcessTree, ProcessWhoseFirstThreadEndedIsMeasured) {
  TestChild child([](const Steps& steps) {
    touched_pages(64_MiB);
    std::thread([copy = steps] {
      ::usleep(100'000);
      copy.done();
    }).detach();
    ::syscall(SYS_exit, 0);  // ends only this thread
  });
  ASSERT_TRUE(child.wait());
  ProcessTree tree(child.pid());
  const auto now = tree.sample();
  ASSERT_TRUE(now);
  EXPECT_GE(now->memory.anon, 64_MiB);
}

// A parent with 64 MiB and eight children: all have the same pages, which exist once.
TEST(MemoryProcessTree, PagesThatForkedChildrenShareCountOnce) {
  const TestChild child([](const Steps& steps) {
    touched_pages(64_MiB);
    steps.done();
    for (int i = 0; i < 8; ++i) fork_and([] {}, steps);
    steps.until_over();
  });
  child.wait();
  ProcessTree tree(child.pid());
  const auto alone = tree.sample();
  ASSERT_TRUE(tree.pss());
  child.go_on();
  for (int i = 0; i < 8; ++i) child.wait();
  const auto all = sample_with(tree, 9);
  ASSERT_TRUE(all);
  EXPECT_GT(all->memory.anon, 9 * 64_MiB);
  expect_about(tree.distinct().anon, alone->memory.anon);  // no walk has seen the children
  ASSERT_TRUE(tree.pss());
  EXPECT_NEAR(double(tree.distinct().anon), double(alone->memory.anon), double(8_MiB));
  tree.sample_resident();
  EXPECT_NEAR(double(tree.distinct().anon), double(alone->memory.anon), double(8_MiB));
}

TEST(MemoryProcessTree, PagesThatAForkedChildWritesAreItsOwn) {
  const TestChild child([](const Steps& steps) {
    auto* pages = static_cast<char*>(touched_pages(64_MiB));
    fork_and(
        [&] {
          for (std::size_t at = 0; at < 64_MiB; at += 4096) pages[at] = 2;
        },
        steps);
    steps.until_over();
  });
  child.wait();
  ProcessTree tree(child.pid());
  sample_with(tree, 2);
  ASSERT_TRUE(tree.pss());
  EXPECT_GT(tree.distinct().anon, 128_MiB - 1_MiB);
}

TEST(MemoryProcessTree, AFileThatSeveralProcessesMapCountsOnce) {
  const TempFile file(32_MiB);
  const TestChild child([&](const Steps& steps) {
    const auto touch = [&] {
      const int fd = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
      const auto* map =
          static_cast<const volatile char*>(::mmap(nullptr, 32_MiB, PROT_READ, MAP_SHARED, fd, 0));
      for (std::size_t at = 0; at < 32_MiB; at += 4096) static_cast<void>(map[at]);
    };
    for (int i = 0; i < 3; ++i) fork_and(touch, steps);
    steps.until_over();
  });
  for (int i = 0; i < 3; ++i) child.wait();
  ProcessTree tree(child.pid());
  const auto sum = sample_with(tree, 4);
  ASSERT_TRUE(sum);
  EXPECT_GE(sum->memory.file, 96_MiB);
  ASSERT_TRUE(tree.pss());
  EXPECT_GE(tree.distinct().file, 32_MiB);
  EXPECT_LT(tree.distinct().file, 64_MiB);
}

}  // namespace
}  // namespace evenkeel
