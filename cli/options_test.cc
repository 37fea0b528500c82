#include "cli/options.h"

#include <gtest/gtest.h>

#include <limits>

#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

// Returns the texts that `parse` accepted although it should reject them.
template <class Parse>
std::vector<std::string> taken(Parse parse, const std::vector<std::string>& texts) {
  std::vector<std::string> wrongly;
  for (const std::string& text : texts) {
    try {
      parse(text);
      wrongly.push_back(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalid) << text;
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << text;
    }
  }
  return wrongly;
}

using Texts = std::vector<std::string>;

TEST(ParseInterval, TakesANumberAndAUnit) {
  EXPECT_EQ(parse_interval("10ms").count(), 10'000'000);
  EXPECT_EQ(parse_interval("0.5s").count(), 500'000'000);
  EXPECT_EQ(parse_interval(".5s").count(), 500'000'000);
  EXPECT_EQ(parse_interval("250us").count(), 250'000);
  EXPECT_EQ(parse_interval("1e2ms").count(), 100'000'000);
  EXPECT_EQ(parse_interval("100us").count(), 100'000);  // the least
  EXPECT_EQ(parse_interval("3600s").count(), 3'600'000'000'000);
}

TEST(ParseInterval, RefusesTheRest) {
  const Texts nonsense = {"",     "10",    "ms",     "10 ms", " 10ms",  "+10ms", "10MS", "10m",
                          "1h",   "10msx", "0x10ms", "1,5s",  "0s",     "-1ms",  "99us", "3601s",
                          "nans", "infs",  "1e99s",  "-infs", "1e999s", "s10",   "10ns"};
  EXPECT_EQ(taken(parse_interval, nonsense), Texts{});
}

TEST(ParseSlope, IsBytesAMinute) {
  EXPECT_DOUBLE_EQ(parse_slope("1MiB/min"), 1 << 20);
  EXPECT_DOUBLE_EQ(parse_slope("64KiB/s"), 64 * 1024 * 60);
  EXPECT_DOUBLE_EQ(parse_slope("60KB/h"), 1000);
  EXPECT_DOUBLE_EQ(parse_slope("0/min"), 0);
  EXPECT_DOUBLE_EQ(parse_slope("1.5M/min"), 1.5 * (1 << 20));
}

TEST(ParseSlope, RefusesTheRest) {
  const Texts nonsense = {"1MiB", "1MiB/", "1MiB/m", "1MiB/day", "1MiB/min/min", "1MiB/ min"};
  EXPECT_EQ(taken(parse_slope, nonsense), Texts{});
  EXPECT_THROW(parse_slope("/min"), Error);
  EXPECT_THROW(parse_slope("-1MiB/min"), Error);
  EXPECT_THROW(parse_slope("fast/min"), Error);
}

TEST(ParsePid, TakesWhatAProcessCanHave) {
  EXPECT_EQ(parse_pid("1"), 1);
  EXPECT_EQ(parse_pid("4194304"), 4194304);
  EXPECT_EQ(parse_pid("2147483647"), std::numeric_limits<pid_t>::max());
  const Texts nonsense = {"", "0", "-1", "1.0", "1 ", " 1", "self", "2147483648", "4294967297"};
  EXPECT_EQ(taken(parse_pid, nonsense), Texts{});
}

TEST(ParseSeconds, TakesMoreThanNothing) {
  EXPECT_DOUBLE_EQ(parse_seconds("30"), 30);
  EXPECT_DOUBLE_EQ(parse_seconds("0.25"), 0.25);
  const Texts nonsense = {"", "0", "-1", "nan", "inf", "1e9", "1s", "soon", "1e999"};
  EXPECT_EQ(taken(parse_seconds, nonsense), Texts{});
}

}  // namespace

}  // namespace evenkeel::cli
