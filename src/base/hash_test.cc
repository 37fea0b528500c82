#include "base/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace evenkeel {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// Computed with xxhsum 0.8.1.
TEST(Xxh3, GivesThePublishedHashes) {
  EXPECT_EQ(xxh3({}), 0x2d06800538d394c2u);
  EXPECT_EQ(xxh3(bytes_of("a")), 0xe6c632b61e964e1fu);
  EXPECT_EQ(xxh3(bytes_of("abc")), 0x78af5f94892f3950u);
  EXPECT_EQ(xxh3_128(bytes_of("abc")), (Hash128{0x06b05ab6733a6185, 0x78af5f94892f3950}));
}

TEST(Xxh3, SeedsChangeIt) { EXPECT_NE(xxh3(bytes_of("abc"), 1), xxh3(bytes_of("abc"))); }

TEST(RunningXxh3, PiecesGiveTheHashOfTheWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 7);
  for (const std::uint64_t seed : {0, 42}) {
    RunningXxh3 running(seed);
    for (std::size_t at = 0, step = 1; at < text.size(); at += step, step = step * 2 + 1) {
      running.append(bytes_of(std::string_view(text).substr(at, step)));
    }
    EXPECT_EQ(running.hash(), xxh3(bytes_of(text), seed));
    running.reset(seed);
    running.append(bytes_of("abc"));
    EXPECT_EQ(running.hash(), xxh3(bytes_of("abc"), seed));
  }
}

}  // namespace
}  // namespace evenkeel
