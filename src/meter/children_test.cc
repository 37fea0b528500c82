#include "meter/children.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/fake_tree.h"
#include "meter/test_child.h"

namespace evenkeel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Clock = LookTimer::Clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Children, OfAllThreadsAreFound) {
  const FakeTree tree;
  tree.write("/proc/7/task/7/children", "8 9 ");
  tree.write("/proc/7/task/70/children", "");
  tree.write("/proc/7/task/71/children", "4194303 ");
  tree.write("/proc/7/task/72/other", "");  // a thread that has just ended
  const Children children(Children::Way::kAsk, tree.root());
  EXPECT_THAT(children.of(7), UnorderedElementsAre(8, 9, 4194303));
  EXPECT_THAT(children.of(8), IsEmpty());
}

TEST(Children, AreFoundByAScanIfTheKernelDoesNotListThem) {
  const FakeTree tree;
  tree.write("/proc/8/stat", "8 (a) (b) S 7 8 8 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 0\n");
  tree.write("/proc/9/stat", "9 (c) S 8 8 8 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 0\n");
  tree.write("/proc/10/stat", "");
  tree.write("/proc/sys/stat", "1 (x) S 7 8 8 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 0\n");
  EXPECT_EQ(Children::best_way(tree.root()), Children::Way::kScan);
  Children children(Children::Way::kScan, tree.root());
  children.refresh();
  EXPECT_THAT(children.of(7), ElementsAre(8));
  EXPECT_THAT(children.of(8), ElementsAre(9));
  EXPECT_THAT(children.of(9), IsEmpty());
}

TEST(Children, BothWaysFindTheSame) {
  if (Children::best_way() == Children::Way::kScan)
    GTEST_SKIP() << "this kernel does not list children";
  TestChild child([](const TestChild::Steps& steps) {
    for (int i = 0; i < 3; ++i) {
      if (::fork() == 0) steps.until_over();
    }
    steps.done();
  });
  ASSERT_TRUE(child.wait());
  Children scan(Children::Way::kScan), ask(Children::Way::kAsk);
  scan.refresh();
  EXPECT_EQ(ask.of(child.pid()).size(), 3u);
  EXPECT_THAT(scan.of(child.pid()), ::testing::UnorderedElementsAreArray(ask.of(child.pid())));
  EXPECT_THAT(scan.of(::getpid()), ::testing::Contains(child.pid()));
}

TEST(Children, NewestProcessIsTheLastWord) {
  EXPECT_EQ(parse_newest_pid("1.98 0.85 1.31 6/140 3330\n"), 3330u);
  EXPECT_FALSE(parse_newest_pid(""));
  EXPECT_FALSE(parse_newest_pid("1.98 0.85 1.31 6/140 \n"));
}

class LookTimerTest : public ::testing::Test {
 protected:
  LookTimerTest() { newest(100); }
  void newest(int pid) const {
    tree_.write("/proc/loadavg", "0.1 0.1 0.1 1/100 " + std::to_string(pid) + "\n");
  }
  // Looks if a look is due, which takes `cost`.
  bool look(LookTimer& timer, Clock::duration at, Clock::duration cost = microseconds(10)) const {
    const Clock::time_point now = start_ + at;
    if (!timer.due(now)) return false;
    timer.looked(now, now + cost);
    return true;
  }
  const FakeTree tree_;
  const Clock::time_point start_ = Clock::now();
};

TEST_F(LookTimerTest, FirstLookIsAtOnceAndTheNextAfterAProcessWasCreated) {
  LookTimer timer(tree_.root());
  EXPECT_TRUE(look(timer, milliseconds(0)));
  EXPECT_FALSE(look(timer, milliseconds(10)));
  newest(101);
  EXPECT_TRUE(look(timer, milliseconds(20)));
  EXPECT_FALSE(look(timer, milliseconds(30)));
}

TEST_F(LookTimerTest, LooksTakeNoMoreThanTheirShareOfTime) {
  LookTimer timer(tree_.root());
  EXPECT_TRUE(look(timer, milliseconds(0), microseconds(500)));
  newest(101);  // is still new at the next look
  EXPECT_FALSE(look(timer, milliseconds(10)));
  EXPECT_FALSE(look(timer, milliseconds(150)));
  EXPECT_TRUE(look(timer, milliseconds(151)));
}

TEST_F(LookTimerTest, LooksOnceASecondWithoutNewProcesses) {
  LookTimer timer(tree_.root());
  EXPECT_TRUE(look(timer, milliseconds(0)));
  EXPECT_FALSE(look(timer, milliseconds(999)));
  EXPECT_TRUE(look(timer, milliseconds(1001)));
  EXPECT_FALSE(look(timer, milliseconds(1100)));
}

TEST_F(LookTimerTest, LooksAsOftenAsAllowedWithoutLoadavg) {
  LookTimer timer(tree_.root() + "/nowhere");
  EXPECT_TRUE(look(timer, milliseconds(0)));
  EXPECT_FALSE(look(timer, milliseconds(3)));
  EXPECT_TRUE(look(timer, milliseconds(4)));
}

}  // namespace
}  // namespace evenkeel
