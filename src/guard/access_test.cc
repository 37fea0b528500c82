#include "guard/access.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

#include "evenkeel/bytes.h"
#include "guard/test_mapping.h"

namespace evenkeel {
namespace {

AccessSample runs_in(const std::string& pages, std::size_t cut = 0) {
  std::vector<std::uint64_t> entries;
  for (const char page : pages) entries.push_back(page == '#' ? std::uint64_t{1} << 63 : 0);
  AccessSample sample;
  {
    RunCounter counter(sample);
    counter.add(entries.data(), cut);
    counter.add(entries.data() + cut, entries.size() - cut);
  }
  return sample;
}

TEST(Access, RunsAreCounted) {
  const AccessSample sample =
      runs_in("##..#..." + std::string(17, '#') + "." + std::string(16, '#'));
  EXPECT_EQ(sample.resident, 36u);
  EXPECT_EQ(sample.runs, 4u);
  EXPECT_EQ(sample.short_runs, 3u);
  EXPECT_EQ(sample.long_pages, 17u);
}

RC_GTEST_PROP(Access, RunsDoNotDependOnWhereReadingIsCut, ()) {
  const auto pages = *rc::gen::container<std::string>(rc::gen::element('#', '.'));
  const auto cut = *rc::gen::inRange<std::size_t>(0, pages.size() + 1);
  const AccessSample whole = runs_in(pages), in_two = runs_in(pages, cut);
  RC_ASSERT(in_two.resident == whole.resident);
  RC_ASSERT(in_two.runs == whole.runs);
  RC_ASSERT(in_two.short_runs == whole.short_runs);
  RC_ASSERT(whole.resident == static_cast<std::uint64_t>(std::ranges::count(pages, '#')));
}

TEST(Access, CropsUnderReadaheadAreRandom) {
  // Eight faults, each with 64 KiB mapped around it and 128 KiB or 8 MiB fetched.
  EXPECT_TRUE(reads_at_random(false, {8 * 32, 8 * 16, 8, 8, 0}, 0));
  EXPECT_TRUE(reads_at_random(false, {8 * 2048, 8 * 16, 8, 8, 0}, 0));
}

TEST(Access, AScanIsNotRandom) {
  EXPECT_FALSE(reads_at_random(false, {4096, 1000, 1, 0, 1000}, 0));
  EXPECT_FALSE(reads_at_random(false, {20000, 18000, 40, 30, 17900}, 0));
}

TEST(Access, FewFaultsDoNotTurnReadaheadOff) {
  EXPECT_FALSE(reads_at_random(false, {}, 0));
  EXPECT_FALSE(reads_at_random(false, {2 * 2048, 2 * 16, 2, 2, 0}, 0));
}

TEST(Access, LargeBlocksKeepReadahead) {
  EXPECT_FALSE(reads_at_random(false, {10 * 2048, 10 * 64, 10, 0, 640}, 0));
}

TEST(Access, CacheThatIsUsedKeepsReadahead) {
  EXPECT_FALSE(reads_at_random(false, {8 * 12, 8 * 12, 8, 8, 0}, 0));
}

TEST(Access, PagesSideBySideBringReadaheadBack) {
  EXPECT_FALSE(reads_at_random(true, {2000, 2000, 3, 0, 2000}, 0));
  EXPECT_TRUE(reads_at_random(true, {2000, 2000, 1000, 1000, 0}, 0));
  EXPECT_TRUE(reads_at_random(true, {100, 100, 1, 0, 100}, 0));  // too few pages to judge
}

TEST(Access, ReadaheadOverHolesIsOffWhenHalfOfItIsNotUsed) {
  AccessSample blocks{10 * 2048, 10 * 256, 10, 0, 2560};
  EXPECT_FALSE(reads_at_random(false, blocks, 0));
  blocks.from_disk = false;
  EXPECT_TRUE(reads_at_random(false, blocks, 0));
  EXPECT_TRUE(reads_at_random(true, blocks, 0));  // with disk reads, runs would turn it on again
  EXPECT_FALSE(reads_at_random(false, {3000, 2000, 3, 0, 2000, false}, 0));
}

TEST(Access, EachReturnOfReadaheadMakesTurningItOffHarder) {
  const AccessSample random{64 * 2048, 64 * 16, 64, 64, 0};
  EXPECT_TRUE(reads_at_random(false, random, 4));
  EXPECT_FALSE(reads_at_random(false, random, 5));
  EXPECT_FALSE(reads_at_random(false, random, 1000));
}

TEST(Access, ResidentPagesAreCountedInAMapping) {
  const NumberFile file(8_MiB);
  const TestMapping map(file, PROT_READ | PROT_WRITE, MAP_PRIVATE);
  const auto begin = reinterpret_cast<std::uint64_t>(map.words());
  const AddressRange range{begin, begin + file.bytes()};
  PageMap pages;
  AccessSample before;
  if (!pages.count(range, before)) GTEST_SKIP() << "the kernel does not show page tables";
  EXPECT_EQ(before.resident, 0u);
  ASSERT_EQ(wrong_in_scan(map, file.words()), 0u);
  AccessSample after;
  ASSERT_TRUE(pages.count(range, after));
  EXPECT_EQ(after.resident, file.bytes() / sys::page_size());
  EXPECT_EQ(after.runs, 1u);
}

}  // namespace
}  // namespace evenkeel
