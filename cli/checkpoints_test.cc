#include "cli/checkpoints.h"

#include <gtest/gtest.h>

#include <random>

namespace evenkeel::cli {
namespace {

std::vector<std::byte> noise(std::size_t size) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

TEST(SliceChecksum, CutsOfTheStreamMakeNoDifference) {
  const auto bytes = noise(100'000);
  SliceChecksum whole(777), pieces(777);
  whole.take(bytes);
  std::mt19937 random(1);
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t count = std::min<std::size_t>(random() % 3000, bytes.size() - at);
    pieces.take(std::span(bytes).subspan(at, count));
    at += count;
  }
  EXPECT_EQ(whole.slices(), 100'000u / 777);
  EXPECT_EQ(whole.checkpoints(), pieces.checkpoints());
}

TEST(SliceChecksum, EveryByteAndTheOrderCount) {
  auto bytes = noise(4096);
  SliceChecksum before(1024), changed(1024), swapped(1024);
  before.take(bytes);
  bytes[100] ^= std::byte{1};
  changed.take(bytes);
  EXPECT_NE(before.checkpoints().back().checksum, changed.checkpoints().back().checksum);
  bytes[100] ^= std::byte{1};
  std::swap_ranges(bytes.begin(), bytes.begin() + 1024, bytes.begin() + 1024);
  swapped.take(bytes);
  EXPECT_NE(before.checkpoints().back().checksum, swapped.checkpoints().back().checksum);
}

TEST(Checkpoints, GrowWithTheLogarithm) {
  std::size_t kept = 0;
  for (std::uint64_t n = 1; n <= (1 << 20); ++n) kept += is_checkpoint(n) ? 1 : 0;
  EXPECT_EQ(kept, 11u * 1024);
  EXPECT_FALSE(is_checkpoint(0));
}

TEST(Checkpoints, RunsMeetAtTheShortestRunsLast) {
  const auto bytes = noise(1'000'000);
  SliceChecksum longer(16), shorter(16);
  longer.take(bytes);
  shorter.take(std::span(bytes).first(500'009));
  const std::uint64_t last = last_common({longer.checkpoints(), shorter.checkpoints()});
  EXPECT_EQ(last, shorter.checkpoints().back().slices);
  EXPECT_GT(last, 500'009 / 16 * 999 / 1000);
  EXPECT_EQ(checksum_at(longer.checkpoints(), last), checksum_at(shorter.checkpoints(), last));
  EXPECT_TRUE(checksum_at(longer.checkpoints(), last));
}

TEST(Checkpoints, NothingInCommonIsZero) {
  EXPECT_EQ(last_common({}), 0u);
  EXPECT_EQ(last_common({{{1, 5}}, {}}), 0u);
  EXPECT_FALSE(checksum_at({}, 0));
}

}  // namespace
}  // namespace evenkeel::cli
