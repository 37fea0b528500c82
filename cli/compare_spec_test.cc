#include "cli/compare_spec.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/compare_work.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

TEST(CompareSpec, SurvivesTheWayToTheWorker) {
  CompareSpec spec;
  spec.paths = {"a b.npy", "100%\xff\x01\n.bin", "%", "%4", "ünï"};
  spec.raw.dtype = "V12";
  spec.raw.shape = {-1, 162};
  spec.raw.offset = 128;
  spec.raw.big_endian = true;
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
    EXPECT_LE(sizes.chunk * item, spec.budget / 2);
    EXPECT_GE(sizes.slice_items, 1u);
    EXPECT_GE(work_sizes(spec, 1, 100_MiB).chunk, 1u);
    EXPECT_GE(work_sizes(spec, 1, 100_MiB).slice_items, 1u);
  }
  spec.pattern = Pattern::kRows;
  EXPECT_EQ(work_sizes(spec, 10, 16).chunk, 10u);
}

}  // namespace
}  // namespace evenkeel::cli
