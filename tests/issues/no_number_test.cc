// Found by the fuzz target `report`: with a time that is NaN or very large, coordinates of the
// picture overflowed, or the search for a column did not end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "profile/test_runs.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(NoNumber, APictureOfAnyTimesIsDrawn) {
  using Limits = std::numeric_limits<double>;
  for (const double odd : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), 1e300,
                           -1e300, Limits::denorm_min()}) {
    ProfileReport report;
    report.budget = 1;
    report.runs = {make_run(10, 20, [](ProfileSample& sample) {
      sample.anon = sample.cache = sample.disk_read = 1000;
    })};
    report.runs[0].samples[7].seconds = odd;
    report.runs[0].marks = {{odd, "here"}};
    const std::string picture = to_svg(report);
    EXPECT_THAT(picture, HasSubstr("</svg>"));
    EXPECT_THAT(picture, Not(HasSubstr("nan")));
    EXPECT_THAT(picture, Not(HasSubstr("inf")));
  }
}

TEST(NoNumber, SizesBeyond64BitsHaveLabels) {
  ProfileReport report;
  report.runs = {make_run(1, 2, [](ProfileSample& sample) {
    sample.anon = sample.file = UINT64_MAX / 2;
    sample.cache = sample.disk_read = UINT64_MAX - 1;
  })};
  EXPECT_THAT(to_svg(report), HasSubstr("16 EiB"));
}

}  // namespace
}  // namespace evenkeel
