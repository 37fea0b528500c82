#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "evenkeel/profile.h"
#include "profile/sample_fields.h"

namespace evenkeel {
namespace {

constexpr auto kMost = ProfileSeries::kMost;

TEST(ProfileSample, MemoryCountsAMappedPageOnce) {
  ProfileSample sample;
  sample.anon = 10;
  sample.shmem = 5;
  sample.file = 100;
  sample.cache = 80;  // most of the mapped pages
  EXPECT_EQ(sample.memory(), 115u);
  sample.cache = 300;  // more was read than is mapped
  EXPECT_EQ(sample.memory(), 315u);
}

TEST(ProfileSample, MemoryIsTheRssIfTheCacheIsUnknown) {
  ProfileSample sample;
  sample.anon = 10;
  sample.file = 100;
  EXPECT_EQ(sample.cache, ProfileSample::kUnknown);
  EXPECT_EQ(sample.memory(), sample.rss());
}

ProfileSample numbered(std::size_t i) {
  ProfileSample sample;
  sample.seconds = static_cast<double>(i);
  sample.cpu_seconds = static_cast<double>(i) / 2;
  sample.disk_read = i * 3;
  sample.processes = 1 + i % 4;
  return sample;
}

TEST(ProfileSeries, KeepsEverySampleWhileThereIsRoom) {
  ProfileSeries series;
  for (std::size_t i = 0; i < kMost; ++i) series.add(numbered(i));
  ASSERT_EQ(series.samples().size(), kMost);
  for (std::size_t i = 0; i < kMost; ++i) {
    ASSERT_EQ(series.samples()[i].seconds, static_cast<double>(i));
    ASSERT_EQ(series.samples()[i].disk_read, i * 3);
  }
}

TEST(ProfileSeries, HasAtMostTheLimitAndAtLeastHalfOfIt) {
  ProfileSeries series;
  for (std::size_t i = 0; i < 20 * kMost; ++i) {
    series.add(numbered(i));
    ASSERT_LE(series.samples().size(), kMost);
    ASSERT_GE(series.samples().size(), std::min(i + 1, kMost / 2));
  }
}

TEST(ProfileSeries, MergesTheSameNumberIntoEachButTheLast) {
  ProfileSeries series;
  const std::size_t count = 5 * kMost + 3;
  for (std::size_t i = 0; i < count; ++i) series.add(numbered(i));
  const auto& samples = series.samples();
  for (std::size_t i = 0; i + 1 < samples.size(); ++i) {
    ASSERT_EQ(samples[i].seconds, static_cast<double>(8 * i + 7));
    ASSERT_EQ(samples[i].disk_read, (8 * i + 7) * 3);
    ASSERT_EQ(samples[i].processes, 4u);
  }
  EXPECT_EQ(samples.back().seconds, static_cast<double>(count - 1));
  EXPECT_EQ(samples.back().cpu_seconds, static_cast<double>(count - 1) / 2);
}

RC_GTEST_PROP(ProfileSeries, LosesNoPeakOfAnyKind, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 4 * kMost);
  ProfileSeries series;
  for (std::size_t i = 0; i < count; ++i) series.add(numbered(i));
  for (const SampleField& field : kSampleSizes) {
    ProfileSeries spiked;
    const auto spike = *rc::gen::inRange<std::size_t>(0, count);
    for (std::size_t i = 0; i < count; ++i) {
      ProfileSample sample = numbered(i);
      sample.*field.value = i == spike ? 77 : i % 50;
      spiked.add(sample);
    }
    const auto found = std::ranges::find(
        spiked.samples(), 77u, [&](const ProfileSample& sample) { return sample.*field.value; });
    RC_ASSERT(found != spiked.samples().end());
    RC_ASSERT(found->seconds >= static_cast<double>(spike));
    const double before = found == spiked.samples().begin() ? -1 : (found - 1)->seconds;
    RC_ASSERT(before < static_cast<double>(spike));
  }
}

TEST(ProfileSeries, KnownValuesReplaceUnknownOnes) {
  for (const std::size_t known : {std::size_t{0}, std::size_t{1}}) {
    ProfileSeries series;
    for (std::size_t i = 0; i <= kMost; ++i) {
      ProfileSample sample;
      if (i % 2 == known) sample.cache = i;
      series.add(sample);
    }
    ASSERT_EQ(series.samples().size(), kMost / 2 + 1);
    EXPECT_EQ(series.samples()[3].cache, 6 + known);
    EXPECT_EQ(series.samples()[3].pss, ProfileSample::kUnknown);
  }
}

TEST(ProfileSeries, StartsAgainAfterItsSamplesWereTaken) {
  ProfileSeries series;
  for (std::size_t i = 0; i < 3 * kMost; ++i) series.add(numbered(i));
  EXPECT_EQ(series.take().size(), 3 * kMost / 4);
  EXPECT_TRUE(series.samples().empty());
  for (std::size_t i = 0; i < 10; ++i) series.add(numbered(i));
  EXPECT_EQ(series.take().size(), 10u);
}

}  // namespace
}  // namespace evenkeel
