#include "meter/shared_pages.h"

#include <gtest/gtest.h>

#include <vector>

#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

// A parent with 300 MiB and eight forked children that share all its pages.
std::vector<ResidentPages> forked_family() {
  std::vector<ResidentPages> family(9, ResidentPages(300_MiB));
  for (ResidentPages& pages : family) pages.set_walked(300_MiB, 300_MiB / 9, 9);
  return family;
}

std::uint64_t distinct(const std::vector<ResidentPages>& family, std::uint64_t shared_once,
                       Growth growth = Growth::kOwn) {
  return distinct_bytes(family, shared_once, growth);
}

TEST(SharedPages, ASingleProcessHasItsResidentSet) {
  EXPECT_EQ(distinct({ResidentPages(5_MiB)}, 0), 5_MiB);
}

TEST(SharedPages, ForkedChildrenAddNothing) {
  EXPECT_NEAR(double(distinct(forked_family(), 300_MiB)), double(300_MiB), 100);
}

TEST(SharedPages, AChildThatNoWalkHasSeenAddsOnlyItsGrowth) {
  ResidentPages parent(300_MiB);
  parent.set_walked(parent.resident(), 300_MiB, 2);  // nothing was shared during the walk
  ResidentPages child(300_MiB);
  EXPECT_EQ(distinct({parent, child}, 0), 300_MiB);
  child.set_resident(320_MiB);
  EXPECT_EQ(distinct({parent, child}, 0), 320_MiB);
}

TEST(SharedPages, AChildThatWasFoundLateSharesNoMoreThanItsParentHas) {
  ResidentPages parent(64_MiB), first(96_MiB);
  parent.set_walked(64_MiB, 32_MiB, 2);
  first.set_walked(96_MiB, 64_MiB, 2);
  const ResidentPages second(90_MiB, parent.resident());
  EXPECT_EQ(distinct({parent, first, second}, 64_MiB), 64_MiB + 32_MiB + 26_MiB);
}

TEST(SharedPages, AnonymousGrowthCountsForEach) {
  auto family = forked_family();
  family[1].set_resident(310_MiB);
  family[2].set_resident(320_MiB);
  EXPECT_NEAR(double(distinct(family, 300_MiB)), double(330_MiB), 100);
}

TEST(SharedPages, GrowthByFilePagesMayBeTheSamePages) {
  auto family = forked_family();
  family[1].set_resident(310_MiB);
  family[2].set_resident(320_MiB);
  EXPECT_NEAR(double(distinct(family, 300_MiB, Growth::kMayBeShared)), double(320_MiB), 100);
}

TEST(SharedPages, TheLastProcessHasAllSharedPages) {
  auto family = forked_family();
  while (family.size() > 1) {
    family.pop_back();
    EXPECT_NEAR(double(distinct(family, 300_MiB)), double(300_MiB), 100);
  }
}

TEST(SharedPages, TheOwnPagesOfAnEndedProcessAreGone) {
  ResidentPages parent(300_MiB), child(2300_MiB);
  parent.set_walked(parent.resident(), 150_MiB, 2);
  child.set_walked(child.resident(), 2150_MiB, 2);
  EXPECT_EQ(distinct({parent, child}, 300_MiB), 2300_MiB);
  EXPECT_EQ(distinct({parent}, 300_MiB), 300_MiB);
}

TEST(SharedPages, AProgramStartedByAForkedChildSharesNothing) {
  ResidentPages parent(300_MiB);
  parent.set_walked(parent.resident(), 300_MiB, 2);
  ResidentPages child(300_MiB);
  child.set_resident(1_MiB);  // exec
  child.set_resident(100_MiB);
  EXPECT_EQ(distinct({parent, child}, 0), 399_MiB);
}

TEST(SharedPages, FreedMemoryIsNoLongerOwn) {
  ResidentPages parent(300_MiB), child(1300_MiB);
  parent.set_walked(parent.resident(), 150_MiB, 2);
  child.set_walked(child.resident(), 1150_MiB, 2);
  child.set_resident(300_MiB);
  EXPECT_EQ(distinct({parent, child}, 300_MiB), 300_MiB);
}

TEST(SharedPages, APssAboveTheResidentSetIsAllOwn) {
  ResidentPages pages(10_MiB);  // it grew between the two readings
  pages.set_walked(pages.resident(), 12_MiB, 2);
  EXPECT_EQ(pages.own(), 10_MiB);
  EXPECT_EQ(pages.shared(), 0u);
}

}  // namespace
}  // namespace evenkeel
