#include "evenkeel/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "evenkeel/error.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();

// Returns the message and checks its kind; empty if the text was accepted.
std::string size_refusal(std::string_view text) {
  try {
    parse_size(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    return error.what();
  }
  return "";
}

TEST(ParseSize, KnowsEveryUnit) {
  EXPECT_EQ(parse_size("4096"), 4096u);
  EXPECT_EQ(parse_size("7B"), 7u);
  EXPECT_EQ(parse_size("3KiB"), 3u << 10);
  EXPECT_EQ(parse_size("3MiB"), 3u << 20);
  EXPECT_EQ(parse_size("3GiB"), 3ull << 30);
  EXPECT_EQ(parse_size("3TiB"), 3ull << 40);
  EXPECT_EQ(parse_size("3K"), 3u << 10);
  EXPECT_EQ(parse_size("3M"), 3u << 20);
  EXPECT_EQ(parse_size("3G"), 3ull << 30);
  EXPECT_EQ(parse_size("3T"), 3ull << 40);
  EXPECT_EQ(parse_size("3KB"), 3'000u);
  EXPECT_EQ(parse_size("3MB"), 3'000'000u);
  EXPECT_EQ(parse_size("3GB"), 3'000'000'000u);
  EXPECT_EQ(parse_size("3TB"), 3'000'000'000'000u);
}

TEST(ParseSize, ForgivesCaseAndBlanks) {
  for (const char* text : {"64mib", "64MIB", " 64 MiB ", "\t64MiB\n", "64 m", "64.0MiB", "064M"}) {
    EXPECT_EQ(parse_size(text), 64_MiB) << text;
  }
}

TEST(ParseSize, TakesFractionsToTheNearestByte) {
  EXPECT_EQ(parse_size("1.5GiB"), 3ull << 29);
  EXPECT_EQ(parse_size("1.5 GB"), 1'500'000'000u);
  EXPECT_EQ(parse_size(".5KiB"), 512u);
  EXPECT_EQ(parse_size("0.001KB"), 1u);
  EXPECT_EQ(parse_size("1.4"), 1u);
}

TEST(ParseSize, ReachesExactlyTo2To63Minus1) {
  EXPECT_EQ(parse_size("9223372036854775807"), kMost);
  EXPECT_EQ(parse_size("8388607T"), 8388607ull << 40);
  EXPECT_EQ(parse_size("8388607.5T"), (8388607ull << 40) + (1ull << 39));
  for (const char* text : {"9223372036854775808", "18446744073709551615", "18446744073709551616",
                           "8388608T", "16777216TiB", "8388608.0T", "99999999999999999999.5",
                           "9223372036854775808.0", "999999999999999999999999999999999999999999"}) {
    EXPECT_THAT(size_refusal(text), HasSubstr("2^63-1")) << text;
  }
}

TEST(ParseSize, RefusesHostileText) {
  EXPECT_THAT(size_refusal(""), HasSubstr("is empty"));
  EXPECT_THAT(size_refusal("  \t"), HasSubstr("is empty"));
  EXPECT_THAT(size_refusal("-1"), HasSubstr("is negative"));
  EXPECT_THAT(size_refusal("-0.5GiB"), HasSubstr("is negative"));
  for (const char* text : {"GiB", "+5", "inf", "nan", "MiB 5", "\xff\xfe", "e5", "(1)"}) {
    EXPECT_THAT(size_refusal(text), HasSubstr("does not begin with a number")) << text;
  }
  for (const char* text : {".", "1.2.3", "1..5M", "..", "1.5.MiB"}) {
    EXPECT_THAT(size_refusal(text), HasSubstr("is not a number")) << text;
  }
  for (const char* text :
       {"1e9", "0x10", "1,000", "1 000", "5PiB", "5kibi", "5bytes", "5 M B", "5iB", "1_000"}) {
    EXPECT_THAT(size_refusal(text), HasSubstr("unknown unit")) << text;
  }
  EXPECT_NE(size_refusal(std::string_view("64\0MiB", 6)), "");
  EXPECT_THAT(size_refusal(std::string(1 << 16, '9')), HasSubstr("2^63-1"));
}

TEST(ParseSize, SaysWhatItWasGivenAndWhichUnitsThereAre) {
  EXPECT_THAT(size_refusal("5 parsecs"), HasSubstr("\"5 parsecs\""));
  EXPECT_THAT(size_refusal("5 parsecs"), HasSubstr("KiB MiB GiB TiB"));
  EXPECT_THAT(size_refusal("5 parsecs"), HasSubstr("KB MB GB TB"));
}

RC_GTEST_PROP(ParseSize, AnswersOrRefusesWhateverTheText, (const std::string& text)) {
  try {
    RC_ASSERT(parse_size(text) <= kMost);
  } catch (const Error& error) {
    RC_ASSERT(error.kind() == ErrorKind::kInvalid);
  }
}

RC_GTEST_PROP(ParseSize, ReadsBackEveryNumberOfBytes, ()) {
  const auto bits = *rc::gen::inRange(1, 64);
  const std::uint64_t bytes = *rc::gen::arbitrary<std::uint64_t>() >> bits;
  RC_ASSERT(parse_size(std::to_string(bytes)) == bytes);
}

TEST(FormatSize, IsShort) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(999), "999 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1 KiB");
  EXPECT_EQ(format_size(64_MiB), "64 MiB");
  EXPECT_EQ(format_size(3ull << 29), "1.5 GiB");
  EXPECT_EQ(format_size(1_GiB + 1), "1 GiB");
  EXPECT_EQ(format_size(std::numeric_limits<std::uint64_t>::max()), "16 EiB");
}

TEST(FormatSize, GoesOnToTheNextUnitBeforeItSays1024) {
  EXPECT_EQ(format_size(1_MiB - 1), "1 MiB");
  EXPECT_EQ(format_size(1_MiB - 300), "1 MiB");  // 1023.7 KiB
  EXPECT_EQ(format_size(1_GiB - 1), "1 GiB");
  EXPECT_EQ(format_size(1023_KiB), "1023 KiB");
}

RC_GTEST_PROP(FormatSize, ReadsBackWithinHalfAPercent, ()) {
  const auto bits = *rc::gen::inRange(15, 64);  // units go up to TiB
  const std::uint64_t bytes = *rc::gen::arbitrary<std::uint64_t>() >> bits;
  const auto back = static_cast<double>(parse_size(format_size(bytes)));
  RC_ASSERT(std::abs(back - static_cast<double>(bytes)) <= static_cast<double>(bytes) * 0.00502);
}

RC_GTEST_PROP(FormatSize, HasAtMostFourDigits, (std::uint64_t number)) {
  const std::string text = format_size(number >> *rc::gen::inRange(0, 64));
  RC_ASSERT(std::ranges::count_if(text, [](char c) { return c >= '0' && c <= '9'; }) <= 4);
  RC_ASSERT(!text.starts_with("1024"));
}

TEST(WithCommas, GroupsByThree) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(123456), "123,456");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
  EXPECT_EQ(with_commas(std::numeric_limits<std::uint64_t>::max()), "18,446,744,073,709,551,615");
}

RC_GTEST_PROP(WithCommas, ChangesNoDigit, (std::uint64_t number)) {
  std::string text = with_commas(number);
  std::erase(text, ',');
  RC_ASSERT(text == std::to_string(number));
}

TEST(SizeLiterals, ArePowersOfTwo) {
  static_assert(1_KiB == 1024 && 1_MiB == 1024_KiB && 1_GiB == 1024_MiB);
}

}  // namespace
}  // namespace evenkeel
