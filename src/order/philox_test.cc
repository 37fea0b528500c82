#include "order/philox.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace evenkeel {
namespace {

constexpr std::uint64_t pair(std::uint64_t first, std::uint64_t second) {
  return first | second << 32;
}

// Known answers published by Random123 (kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox(0, 0, Stream::kDraws, 0),
            (Block{pair(0x6627e8d5, 0xe169c58d), pair(0xbc57ac4c, 0x9b00dbd8)}));
  const std::uint64_t ones = ~std::uint64_t{0};
  EXPECT_EQ(philox(ones, ones, Stream::kRoundKeys, ones >> 1),
            (Block{pair(0x408f276d, 0x41c83b0e), pair(0xa20bc7c6, 0x6d5451fd)}));
  EXPECT_EQ(philox(pair(0xa4093822, 0x299f31d0), pair(0x13198a2e, 0x03707344), Stream::kRoundKeys,
                   pair(0x243f6a88, 0x05a308d3)),
            (Block{pair(0xd16cfe09, 0x94fdcceb), pair(0x5001e420, 0x24126ea1)}));
}

RC_GTEST_PROP(Philox, EveryPartOfTheInputMatters,
              (std::uint64_t seed, std::uint64_t epoch, std::uint64_t index)) {
  index >>= 1;
  std::set<std::uint64_t> seen = {philox(seed, epoch, Stream::kDraws, index).low,
                                  philox(seed, epoch, Stream::kRoundKeys, index).low};
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t flip = std::uint64_t{1} << bit;
    seen.insert(philox(seed ^ flip, epoch, Stream::kDraws, index).low);
    seen.insert(philox(seed, epoch ^ flip, Stream::kDraws, index).low);
    if (bit < 63) seen.insert(philox(seed, epoch, Stream::kDraws, index ^ flip).low);
  }
  RC_ASSERT(seen.size() == 2 + 64 + 64 + 63u);
}

}  // namespace
}  // namespace evenkeel
