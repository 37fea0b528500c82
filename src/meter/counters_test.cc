#include "meter/counters.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <cerrno>
#include <ctime>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "evenkeel/meter.h"
#include "meter/test_child.h"

namespace evenkeel {
namespace {

std::string stat_text(const std::string& name, const std::string& state = "S") {
  return "77 (" + name + ") " + state +
         " 5 77 77 0 -1 4194560 100 200 3 4 50 60 700 800 20 0 9 0 12345 1000 10 "
         "18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
}

TEST(Counters, StatFieldsAreParsed) {
  const auto stat = parse_stat(stat_text("python3"));
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent, 5);
  EXPECT_EQ(stat->minor_faults, 100u);
  EXPECT_EQ(stat->child_minor_faults, 200u);
  EXPECT_EQ(stat->major_faults, 3u);
  EXPECT_EQ(stat->child_major_faults, 4u);
  EXPECT_EQ(stat->ticks, 110u);
  EXPECT_EQ(stat->child_ticks, 1500u);
  EXPECT_EQ(stat->threads, 9u);
}

TEST(Counters, OddNamesDoNotShiftFields) {
  for (const char* name : {"a) (b", "", ")", "(((", ") R 1 1 1", "a\nb", " x ", "S 5 77"}) {
    const auto stat = parse_stat(stat_text(name, "R"));
    ASSERT_TRUE(stat) << name;
    EXPECT_EQ(stat->state, 'R') << name;
    EXPECT_EQ(stat->parent, 5) << name;
    EXPECT_EQ(stat->threads, 9u) << name;
  }
}

TEST(Counters, MalformedStatIsRefused) {
  EXPECT_FALSE(parse_stat(""));
  EXPECT_FALSE(parse_stat("77 python3 S 5"));
  EXPECT_FALSE(parse_stat("77 (python3)"));
  EXPECT_FALSE(parse_stat("77 (python3) S 5 77 77 0 -1 4194560 100 200 3"));
  EXPECT_FALSE(parse_stat("77 (python3) S 5 77 77 0 -1 4194560 100 many 3 4 5 6 7 8 20 0 9 0"));
}

TEST(Counters, AProcessWhoseFirstThreadEndedIsNoZombieYet) {
  EXPECT_FALSE(parse_stat(stat_text("x", "Z"))->zombie());  // nine threads
  ProcessStat stat = *parse_stat(stat_text("x", "Z"));
  stat.threads = 1;
  EXPECT_TRUE(stat.zombie());
  stat.state = 'S';
  EXPECT_FALSE(stat.zombie());
}

TEST(Counters, FaultsAndTimeOfThisProcessRise) {
  const auto before = process_counters();
  ::munmap(touched_pages(16_MiB), 16_MiB);
  const std::clock_t begin = std::clock();
  while (std::clock() - begin < CLOCKS_PER_SEC / 5) {
  }
  const auto after = process_counters();
  EXPECT_GE(after.minor_faults - before.minor_faults, 16_MiB / 4096);
  EXPECT_GE(after.cpu_seconds - before.cpu_seconds, 0.15);
  EXPECT_GE(after.major_faults, before.major_faults);
  EXPECT_EQ(after.disk_read.has_value(), disk_bytes_read().has_value());
}

TEST(Counters, ProcessWithAnOddNameIsRead) {
  TestChild child([](const TestChild::Steps& steps) {
    ::prctl(PR_SET_NAME, "a) (b");
    touched_pages(8_MiB);
    steps.done();
  });
  ASSERT_TRUE(child.wait());
  const auto counters = process_counters(child.pid());
  EXPECT_GE(counters.minor_faults, 8_MiB / 4096);
  EXPECT_LT(counters.cpu_seconds, 60);
}

TEST(Counters, NoSuchProcessIsAnError) {
  try {
    process_counters(0x3ffffff0);
    FAIL() << "measured a process that does not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kSystem);
    EXPECT_EQ(error.code(), ESRCH);
  }
  EXPECT_FALSE(process_pss(0x3ffffff0));
}

TEST(MemoryCounters, PssOfPrivateMemoryIsItsSize) {
  if (!process_pss()) GTEST_SKIP() << "this kernel does not report PSS";
  TestChild child([](const TestChild::Steps& steps) {
    steps.done();
    touched_pages(64_MiB);
    steps.done();
  });
  ASSERT_TRUE(child.wait());
  const auto before = process_pss(child.pid());
  ASSERT_TRUE(child.step());
  const auto after = process_pss(child.pid());
  ASSERT_TRUE(before && after);
  EXPECT_NEAR(static_cast<double>(*after - *before), 64.0 * (1 << 20), 0.02 * 64 * (1 << 20));
  child.become_zombie();
  EXPECT_FALSE(process_pss(child.pid()));
}

}  // namespace
}  // namespace evenkeel
