#include "guard/cache_map.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>

#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

RC_GTEST_PROP(CacheMap, PartsAreTheMappingCutAtMultiplesOfTheirSizeInTheFile, ()) {
  const std::uint64_t offset = *rc::gen::inRange<std::uint64_t>(0, 1 << 20) * 4096;
  const std::uint64_t length = *rc::gen::inRange<std::uint64_t>(1, 1 << 22) * 4096;
  const std::uint64_t budget = *rc::gen::inRange<std::uint64_t>(4_MiB, 1_GiB);
  const CacheMap parts(offset, length, budget);
  std::uint64_t at = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const CacheMap::Range range = parts.range(part);
    RC_ASSERT(range.begin == at);
    RC_ASSERT(range.length > 0u);
    RC_ASSERT(range.length <= parts.part_bytes());
    if (part > 0) RC_ASSERT((offset + range.begin) % parts.part_bytes() == 0u);
    at += range.length;
  }
  RC_ASSERT(at == length);
  RC_ASSERT(parts.part_bytes() <= std::max<std::uint64_t>(budget / 8, 2_MiB));
}

TEST(CacheMap, HugeMappingsHaveFewParts) {
  const CacheMap parts(0, 102400_GiB, 64_MiB);
  EXPECT_LE(parts.size(), 1u << 16);
  EXPECT_EQ(parts.range(parts.size() - 1).begin + parts.range(parts.size() - 1).length, 102400_GiB);
}

TEST(CacheMap, APartIsAsOldAsItsFirstPage) {
  CacheMap parts(0, 16_MiB, 16_MiB);
  parts.found(1, {4096, 0}, 3);
  parts.found(1, {8192, 4096}, 5);
  EXPECT_EQ(parts[1].since, 3u);
  EXPECT_EQ(parts[1].grown, 4096u);
  EXPECT_EQ(parts[1].dirty, 4096u);
  EXPECT_EQ(parts.cached(), 8192u);
  parts.found(1, {0, 0}, 6);
  parts.found(1, {4096, 0}, 7);
  EXPECT_EQ(parts[1].since, 7u);
}

TEST(CacheMap, APartThatCouldNotBeReleasedIsTriedLast) {
  CacheMap parts(0, 16_MiB, 16_MiB);
  parts.found(0, {1_MiB, 0}, 1);
  parts.found(1, {1_MiB, 0}, 2);
  parts.released(0, {4096, 0}, 2);
  parts.released(0, {4096, 0}, 3);
  EXPECT_GT(parts[0].since, parts[1].since);
  EXPECT_EQ(parts.cached(), 1_MiB + 4096);
}

RC_GTEST_PROP(CacheMap, ALookFindsAllBytesByGroupsOrByParts, ()) {
  CacheMap parts(0, 1_GiB, 32_MiB);
  const auto looks = *rc::gen::container<std::vector<std::map<std::uint64_t, std::uint64_t>>>(
      3, rc::gen::container<std::map<std::uint64_t, std::uint64_t>>(
             rc::gen::inRange<std::uint64_t>(0, 256), rc::gen::inRange<std::uint64_t>(1, 100)));
  std::uint64_t now = 0;
  for (const auto& cached : looks) {  // bytes cached in each 4 MiB of the file
    std::uint64_t sum = 0;
    for (const auto& [at, bytes] : cached) sum += bytes;
    parts.look(++now, [&](CacheMap::Range range) {
      CacheMap::Found found;
      for (const auto& [at, bytes] : cached) {
        if (at * 4_MiB >= range.begin && at * 4_MiB < range.begin + range.length) {
          found.cached += bytes;
        }
      }
      return found;
    });
    RC_ASSERT(parts.cached() == sum);
  }
}

TEST(CacheMap, APartThatMustBeWrittenKeepsItsAgeOnce) {
  CacheMap parts(0, 16_MiB, 8_MiB);
  parts.found(0, {2_MiB, 2_MiB}, 1);
  parts.released(0, {1_MiB, 1_MiB}, 5);
  EXPECT_EQ(parts[0].since, 1u);
  parts.released(0, {1_MiB, 1_MiB}, 6);  // changed again, or the disk is slow: try others first
  EXPECT_EQ(parts[0].since, 6u);
  parts.found(1, {2_MiB, 0}, 1);
  parts.released(1, {2_MiB, 0}, 7);  // another process maps it
  EXPECT_EQ(parts[1].since, 7u);
}

TEST(CacheMap, FetchedIsAllThatCameAfterTheFirstLook) {
  CacheMap parts(0, 8_MiB, 8_MiB);  // 4 parts of 2 MiB
  std::uint64_t cached = 1_MiB;
  const auto ask = [&](CacheMap::Range range) {
    return CacheMap::Found{range.begin == 0 ? cached : 0, 0};
  };
  parts.look(1, ask);
  EXPECT_EQ(parts.fetched(), 0u);
  cached = 2_MiB;
  parts.look(2, ask);
  EXPECT_EQ(parts.fetched(), 1_MiB);
  parts.released(0, {}, 2);
  parts.look(3, ask);
  EXPECT_EQ(parts.fetched(), 3_MiB);
}

TEST(CacheMap, EmptyGroupsAreAskedAboutOnce) {
  CacheMap parts(0, 1_GiB, 32_MiB);  // 256 parts of 4 MiB
  ASSERT_EQ(parts.size(), 256u);
  int asked = 0;
  const auto one_page = [&](CacheMap::Range range) {
    ++asked;
    return CacheMap::Found{range.begin == 0 ? std::uint64_t{4096} : 0, 0};
  };
  parts.look(1, one_page);
  EXPECT_EQ(asked, 4 + 64);
}

}  // namespace
}  // namespace evenkeel
