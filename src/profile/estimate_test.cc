#include "profile/estimate.h"

#include <gtest/gtest.h>

namespace evenkeel {
namespace {

constexpr auto kUnknown = ProfileSample::kUnknown;

// `cache` is as the recorder leaves it: the value measured in this sample, or the last one.
ProfileSample sample(double seconds, std::uint64_t file, std::uint64_t cache, bool measured) {
  ProfileSample sample;
  sample.seconds = seconds;
  sample.file = file;
  sample.cache = cache;
  sample.cache_measured = measured;
  return sample;
}

std::vector<std::uint64_t> estimated_caches(std::vector<ProfileSample> samples) {
  estimate_between(samples);
  std::vector<std::uint64_t> caches;
  for (const ProfileSample& one : samples) caches.push_back(one.cache);
  return caches;
}

using Caches = std::vector<std::uint64_t>;

TEST(EstimateBetween, TheCacheGrowsLinearlyIfNoPagesAreMapped) {
  EXPECT_EQ(estimated_caches({sample(0, 5, 0, true), sample(1, 5, 0, false), sample(2, 5, 0, false),
                              sample(4, 5, 400, true)}),
            (Caches{0, 100, 200, 400}));
}

TEST(EstimateBetween, CacheIsNeverBelowTheMappedPagesItContains) {
  EXPECT_EQ(estimated_caches({sample(0, 0, 0, true), sample(1, 800, 0, false),
                              sample(2, 950, 0, false), sample(3, 1000, 1000, true)}),
            (Caches{0, 800, 950, 1000}));
}

TEST(EstimateBetween, UnmappingMakesNoPeakThatWasNotMeasured) {
  EXPECT_EQ(estimated_caches({sample(0, 1000, 1000, true), sample(1, 1000, 1000, false),
                              sample(2, 0, 1000, true)}),
            (Caches{1000, 1000, 1000}));
}

TEST(EstimateBetween, SamplesAfterTheLastMeasurementKeepItsValue) {
  EXPECT_EQ(estimated_caches({sample(0, 0, 7, true), sample(1, 900, 7, false)}), (Caches{7, 7}));
}

TEST(EstimateBetween, UnknownStaysUnknown) {
  EXPECT_EQ(estimated_caches({sample(0, 0, 10, true), sample(1, 0, 10, false),
                              sample(2, 0, kUnknown, true), sample(3, 0, kUnknown, false),
                              sample(4, 0, 50, true)}),
            (Caches{10, 10, kUnknown, kUnknown, 50}));
}

TEST(EstimateBetween, ThePssFollowsTheResidentSet) {
  std::vector<ProfileSample> samples(3);
  for (std::size_t i = 0; i < 3; ++i) samples[i].seconds = double(i);
  samples[0].anon = samples[0].pss = 100;
  samples[1].anon = 900;
  samples[2].anon = samples[2].pss = 1000;
  samples[0].pss_measured = samples[2].pss_measured = true;
  samples[1].pss = 100;
  estimate_between(samples);
  EXPECT_EQ(samples[1].pss, 900u);
}

}  // namespace
}  // namespace evenkeel
