#include "tokens/widen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

namespace evenkeel {
namespace {

template <class From, class To>
void expect_widened(std::size_t count) {
  std::vector<From> tokens(count + 1);
  for (std::size_t i = 0; i <= count; ++i) tokens[i] = static_cast<From>(i * 2654435761u);
  tokens[count] = std::numeric_limits<From>::max();
  // Unaligned by one byte, as in Megatron files and at odd raw offsets.
  std::vector<std::byte> stored(1 + tokens.size() * sizeof(From));
  std::memcpy(stored.data() + 1, tokens.data(), tokens.size() * sizeof(From));
  std::vector<To> x(count), y(count);
  ASSERT_TRUE(widen_xy(DType::of<From>(), stored.data() + 1, count, DType::of<To>(),
                       reinterpret_cast<std::byte*>(x.data()),
                       reinterpret_cast<std::byte*>(y.data())));
  for (std::size_t i = 0; i < count; ++i) {
    ASSERT_EQ(x[i], static_cast<To>(tokens[i])) << i;
    ASSERT_EQ(y[i], static_cast<To>(tokens[i + 1])) << i;
  }
}

TEST(Widen, GivesEveryValueAtEveryLength) {
  for (std::size_t count = 0; count < 70; ++count) {
    expect_widened<std::uint8_t, std::int64_t>(count);
    expect_widened<std::int8_t, std::int32_t>(count);
    expect_widened<std::uint16_t, std::int64_t>(count);
    expect_widened<std::uint16_t, std::int32_t>(count);
    expect_widened<std::uint16_t, std::uint16_t>(count);
    expect_widened<std::int16_t, std::int64_t>(count);
    expect_widened<std::int32_t, std::int64_t>(count);
    expect_widened<std::uint32_t, std::int64_t>(count);
    expect_widened<std::int64_t, std::int64_t>(count);
  }
}

template <class From, class To>
bool fits(From token) {
  const From tokens[2] = {0, token};
  To x, y;
  return widen_xy(DType::of<From>(), reinterpret_cast<const std::byte*>(tokens), 1, DType::of<To>(),
                  reinterpret_cast<std::byte*>(&x), reinterpret_cast<std::byte*>(&y));
}

TEST(Widen, SaysWhenATokenDoesNotFit) {
  EXPECT_TRUE((fits<std::uint32_t, std::int32_t>(0x7fffffffu)));
  EXPECT_FALSE((fits<std::uint32_t, std::int32_t>(0x80000000u)));
  EXPECT_FALSE((fits<std::uint64_t, std::int64_t>(std::uint64_t{1} << 63)));
  EXPECT_TRUE((fits<std::int64_t, std::int32_t>(-5)));
  EXPECT_FALSE((fits<std::int64_t, std::int32_t>(std::int64_t{1} << 31)));
  EXPECT_FALSE((fits<std::uint64_t, std::int32_t>(std::uint64_t{1} << 32)));
}

TEST(Widen, TakesIntegersOnly) {
  EXPECT_TRUE(can_widen(DType::parse("uint16"), DType::parse("int64")));
  EXPECT_TRUE(can_widen(DType::parse("uint16"), DType::parse("uint16")));
  EXPECT_FALSE(can_widen(DType::parse("uint16"), DType::parse("float32")));
  EXPECT_FALSE(can_widen(DType::parse("float32"), DType::parse("int64")));
  EXPECT_FALSE(can_widen(DType::parse("uint32"), DType::parse("uint16")));
}

TEST(NumberDocument, SetsAllAndNothingElse) {
  for (std::size_t count = 0; count < 80; ++count) {
    for (std::size_t begin = 0; begin < 9; ++begin) {
      std::vector<std::int32_t> positions(begin + count + 9, -5), numbers = positions;
      std::vector<std::int32_t> expected = positions, same = positions;
      for (std::size_t i = 0; i < count; ++i) {
        expected[begin + i] = static_cast<std::int32_t>(i);
        same[begin + i] = -1;
      }
      number_document(positions.data() + begin, numbers.data() + begin, count, -1);
      ASSERT_EQ(positions, expected) << begin << " " << count;
      ASSERT_EQ(numbers, same) << begin << " " << count;
    }
  }
}

}  // namespace
}  // namespace evenkeel
