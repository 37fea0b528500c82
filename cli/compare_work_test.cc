#include "cli/compare_work.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

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

TEST(CompareSpec, SurvivesTheWayToTheWorker) {
  CompareSpec spec;
  spec.paths = {"a b.npy", "100%\xff\x01\n.bin", "%", "%4", "ünï"};
  spec.raw.dtype = "V12";
  spec.raw.shape = {-1, 162};
  spec.raw.offset = 128;
  spec.raw.big_endian = true;
  spec.raw.name = "100%\xff";
  spec.pattern = Pattern::kRows;
  spec.budget = UINT64_MAX;
  spec.seconds = 0.25;
  spec.merge_gap = 0;
  spec.seed = UINT64_MAX;
  const std::string text = nlohmann::json(spec).dump();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto back = nlohmann::json::parse(text).get<CompareSpec>();
  EXPECT_EQ(back.paths, spec.paths);
  EXPECT_EQ(back.raw.dtype, spec.raw.dtype);
  EXPECT_EQ(back.raw.shape, spec.raw.shape);
  EXPECT_EQ(back.raw.offset, spec.raw.offset);
  EXPECT_TRUE(back.raw.big_endian);
  EXPECT_EQ(back.raw.name, spec.raw.name);
  EXPECT_EQ(back.pattern, spec.pattern);
  EXPECT_EQ(back.budget, spec.budget);
  EXPECT_EQ(back.seconds, spec.seconds);
  EXPECT_EQ(back.merge_gap, spec.merge_gap);
  EXPECT_EQ(back.seed, spec.seed);
}

TEST(CompareSpec, ResultSurvivesTheWayBack) {
  WorkerResult result;
  result.engine = {EngineKind::kAuto, EngineKind::kDirect, "how", "why"};
  result.items = 7;
  result.seconds = 1.5;
  result.checkpoints = {{1, UINT64_MAX}, {2, 0}};
  const auto back = nlohmann::json(result).get<WorkerResult>();
  EXPECT_EQ(back.engine.asked, EngineKind::kAuto);
  EXPECT_EQ(back.engine.chosen, EngineKind::kDirect);
  EXPECT_EQ(back.items, 7u);
  EXPECT_FALSE(back.disk_bytes);
  EXPECT_EQ(back.checkpoints, result.checkpoints);
}

TEST(CompareSpec, UnknownPatternNamesTheKnown) {
  EXPECT_THROW(parse_pattern("zigzag"), Error);
  for (const Pattern pattern : {Pattern::kCrops, Pattern::kRows, Pattern::kScan}) {
    EXPECT_EQ(parse_pattern(pattern_name(pattern)), pattern);
  }
}

TEST(WorkSizes, AreAsStatedWhereTheBudgetAllows) {
  CompareSpec spec;
  spec.budget = 64_MiB;
  spec.pattern = Pattern::kCrops;
  EXPECT_EQ(work_sizes(spec, 1 << 30, 2).chunk, 1024u);
  spec.pattern = Pattern::kRows;
  EXPECT_EQ(work_sizes(spec, 3'000'000, 648).chunk, 50'000u);
  EXPECT_EQ(work_sizes(spec, 3'000'000, 648).slice_items, 500u);
  spec.pattern = Pattern::kScan;
  EXPECT_EQ(work_sizes(spec, 3'000'000, 648).chunk, 4_MiB / 648);
}

TEST(WorkSizes, ShrinkWithTheBudgetAndTheArray) {
  CompareSpec spec;
  spec.budget = 1_MiB;
  for (const Pattern pattern : {Pattern::kCrops, Pattern::kRows, Pattern::kScan}) {
    spec.pattern = pattern;
    const std::uint64_t item = pattern == Pattern::kCrops ? 1024 * 16 : 16;
    const WorkSizes sizes = work_sizes(spec, 1 << 30, 16);
    EXPECT_LE(sizes.chunk * item, spec.budget / 8);  // beside 868,352 bytes of engine "advise"
    EXPECT_GE(sizes.slice_items, 1u);
    EXPECT_GE(work_sizes(spec, 1, 100_MiB).chunk, 1u);
    EXPECT_GE(work_sizes(spec, 1, 100_MiB).slice_items, 1u);
  }
  spec.pattern = Pattern::kRows;
  EXPECT_EQ(work_sizes(spec, 10, 16).chunk, 10u);
}

}  // namespace

}  // namespace evenkeel::cli
