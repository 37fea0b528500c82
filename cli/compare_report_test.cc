#include "cli/compare_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "evenkeel/bytes.h"

namespace evenkeel::cli {
namespace {

EngineOutcome engine(EngineKind kind, std::vector<std::uint64_t> checksums) {
  EngineOutcome outcome;
  outcome.engine = kind;
  outcome.work.seconds = 2;
  outcome.work.items = 500 * checksums.size();
  outcome.work.wanted_bytes = 1_MiB;
  outcome.work.disk_bytes = 3_MiB;
  outcome.work.slice_items = 500;
  for (const std::uint64_t checksum : checksums) {
    outcome.work.checkpoints.push_back({outcome.work.checkpoints.size() + 1, checksum});
  }
  outcome.growth.rss = 10_MiB;
  outcome.growth.cache = outcome.growth.memory = 2_MiB;
  return outcome;
}

CompareOutcome outcome_of(std::vector<EngineOutcome> engines) {
  CompareOutcome outcome;
  outcome.spec.paths = {"a.npy"};
  outcome.spec.pattern = Pattern::kRows;
  outcome.spec.budget = 16_MiB;
  outcome.engines = std::move(engines);
  compare_checksums(outcome);
  return outcome;
}

TEST(CompareReport, EqualWorkIsComparedWhereAllHavePassed) {
  const auto outcome =
      outcome_of({engine(EngineKind::kMap, {1, 2}), engine(EngineKind::kRead, {1, 2, 3, 4})});
  EXPECT_TRUE(outcome.good());
  EXPECT_EQ(outcome.checksum, 2u);
  EXPECT_EQ(outcome.checksum_items, 1000u);
  EXPECT_EQ(complaint(outcome), "");
  const auto report = to_report(outcome);
  EXPECT_EQ(report["results"][0]["checksum"], "0000000000000002");
  EXPECT_EQ(report["results"][1]["checksum"], "0000000000000002");
  EXPECT_EQ(report["results"][1]["items_per_s"], 1000.0);
}

std::string words_of(std::uint64_t data, std::uint64_t memory, std::uint64_t wanted) {
  auto outcome = outcome_of({engine(EngineKind::kMap, {1}), engine(EngineKind::kRead, {1})});
  outcome.spec.seconds = 1;
  outcome.data_bytes = data;
  outcome.memory_bytes = memory;
  for (EngineOutcome& engine : outcome.engines) engine.work.wanted_bytes = wanted;
  std::string words = to_words(outcome);
  std::replace(words.begin(), words.end(), '\n', ' ');
  return words;
}

TEST(CompareReport, ARunThatEndsBeforeOnePassIsAFirstPass) {
  const std::string words = words_of(1_GiB, 8_GiB, 256_MiB);
  EXPECT_NE(words.find("(map 25 %, read 25 % of 1 GiB)"), std::string::npos) << words;
  EXPECT_NE(words.find("They apply if you read the data once"), std::string::npos) << words;
  EXPECT_NE(words.find("use --seconds 8."), std::string::npos) << words;
}

TEST(CompareReport, DataThatFitsFreeMemoryIsReadFromThere) {
  const std::string words = words_of(1_GiB, 8_GiB, 5_GiB);
  EXPECT_NE(words.find("The data (1 GiB) fits free memory of 8 GiB"), std::string::npos) << words;
  EXPECT_NE(words.find("use --limit SIZE"), std::string::npos) << words;
}

TEST(CompareReport, DataThatDoesNotFitIsTheSameInLongRuns) {
  const std::string words = words_of(64_GiB, 8_GiB, 256_MiB);
  EXPECT_NE(words.find("does not fit free memory of 8 GiB"), std::string::npos) << words;
}

TEST(CompareReport, WrongDataIsNamedWithItsEngine) {
  const auto outcome =
      outcome_of({engine(EngineKind::kMap, {1, 2}), engine(EngineKind::kDirect, {1, 9}),
                  engine(EngineKind::kRead, {1, 2, 3})});
  EXPECT_FALSE(outcome.good());
  EXPECT_EQ(outcome.differing, std::vector{EngineKind::kDirect});
  EXPECT_NE(complaint(outcome).find("WRONG DATA"), std::string::npos);
  EXPECT_NE(complaint(outcome).find("0000000000000009 from direct"), std::string::npos);
  EXPECT_NE(complaint(outcome).find("0000000000000002 from map, read"), std::string::npos);
}

TEST(CompareReport, FailedEngineIsReportedAndNotCompared) {
  EngineOutcome failed = engine(EngineKind::kDirect, {});
  failed.error = "it broke";
  const auto outcome = outcome_of({engine(EngineKind::kMap, {1}), failed});
  EXPECT_FALSE(outcome.good());
  EXPECT_EQ(outcome.checksum, 1u);
  EXPECT_EQ(complaint(outcome), "engine direct: it broke");
  EXPECT_EQ(to_report(outcome)["failures"][0]["engine"], "direct");
  EXPECT_NE(to_table(outcome).find("failed"), std::string::npos);
}

TEST(CompareReport, BudgetIsJudgedByRssAndByMemory) {
  Growth growth;
  growth.rss = growth.anon = 5;
  EXPECT_EQ(growth.within(5), std::nullopt);  // the cache is not known
  EXPECT_EQ(growth.within(4), false);
  growth.cache = growth.memory = 6;
  EXPECT_EQ(growth.within(5), false);
  EXPECT_EQ(growth.within(6), true);
}

TEST(CompareReport, WordsNameEnginesOverTheBudget) {
  EngineOutcome map = engine(EngineKind::kMap, {1});
  map.growth.rss = 100_MiB;
  const std::string words = to_words(outcome_of({map, engine(EngineKind::kRead, {1})}));
  EXPECT_NE(words.find("Over the budget of 16 MiB: map (100 MiB)"), std::string::npos);
  EXPECT_NE(words.find("The fastest engine within the budget is read"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel::cli
