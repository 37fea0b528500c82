#include "cli/profile_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/bytes.h"

namespace evenkeel::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

ProfileSummary held(std::uint64_t memory) {
  ProfileSummary summary;
  summary.peak_memory = summary.peak_rss = memory;
  return summary;
}

ProfileSummary rising(double memory, double rss) {
  ProfileSummary summary = held(1_GiB);
  summary.slope_memory = memory;
  summary.slope_rss = rss;
  return summary;
}

ProfileRun run_of(double seconds, std::size_t samples) {
  ProfileRun run;
  run.ended = "exit code 0";
  run.seconds = seconds;
  run.samples.resize(samples);
  return run;
}

TEST(FailedCheck, ChecksOnlyWhatWasRequested) {
  ProfileOptions options;
  options.budget = 1;
  EXPECT_EQ(failed_check(options, run_of(0, 0), rising(1e12, 1e12)), "");
}

TEST(FailedCheck, TheBudgetItselfIsAllowedAndAByteMoreIsNot) {
  ProfileOptions options;
  options.budget = 64_MiB;
  options.fail_over_budget = true;
  EXPECT_EQ(failed_check(options, run_of(1, 100), held(64_MiB)), "");
  EXPECT_EQ(failed_check(options, run_of(1, 100), held(64_MiB + 1)),
            "over budget: 67,108,865 bytes of memory at the peak, 67,108,864 allowed");
}

TEST(FailedCheck, TheSteeperOfMemoryAndRssCounts) {
  ProfileOptions options;
  options.fail_slope = 1 << 20;
  const auto run = run_of(10, 1000);
  EXPECT_EQ(failed_check(options, run, rising(1 << 20, 0)), "");
  EXPECT_EQ(failed_check(options, run, rising(-1e9, -1e9)), "");  // falling is no reason
  EXPECT_EQ(failed_check(options, run, rising(3 << 20, 2 << 20)),
            "rising: 3 MiB per minute over the second half of the run, 1 MiB allowed");
  EXPECT_THAT(failed_check(options, run, rising(0, 2 << 20)), HasSubstr("rising: 2 MiB"));
}

TEST(FailedCheck, AnUnknownSlopeFails) {
  ProfileOptions options;
  options.fail_slope = 1e15;
  const std::string why = failed_check(options, run_of(0.52, 7), held(1));
  EXPECT_THAT(why, HasSubstr("cannot be computed from 0.5 s and 7 samples"));
  EXPECT_THAT(why, HasSubstr("hint: "));
}

TEST(LiveLine, FitsWhatIsKnown) {
  ProfileSample sample;
  sample.seconds = 3725;
  sample.anon = 10_MiB;
  sample.file = 20_MiB;
  sample.shmem = 2_MiB;
  EXPECT_EQ(live_line(sample, std::nullopt),
            " 1:02:05  RSS 32 MiB (anon 10 MiB, file 20 MiB, shmem 2 MiB)  page cache unknown ");
  sample.seconds = 65;
  sample.cache = 30_MiB;
  sample.processes = 3;
  const std::string line = live_line(sample, 84_MiB);
  EXPECT_THAT(line, HasSubstr(" 1:05  RSS 32 MiB"));
  EXPECT_THAT(line, HasSubstr("page cache +30 MiB  3 processes"));
  EXPECT_THAT(line, HasSubstr(" 50 % of 84 MiB"));  // 10 + 2 + the larger of 20 and 30
}

TEST(LiveLine, ABudgetOfNothingIsNoDivisionByIt) {
  ProfileSample sample;
  EXPECT_THAT(live_line(sample, 0), HasSubstr(" 0 % of 0 B"));
}

TEST(Words, SayWhatIsUnknownAndEveryNote) {
  ProfileRun run = run_of(3.5, 10);
  run.notes = {"Something is not known."};
  ProfileSummary summary = held(5_MiB);
  summary.major_faults = 1;
  summary.most_processes = 2;
  const std::string text = to_words(run, summary);
  EXPECT_THAT(text, testing::ContainsRegex("\nPSS +unknown"));
  EXPECT_THAT(text, testing::ContainsRegex("\npage cache added +unknown"));
  EXPECT_THAT(text, HasSubstr("exit code 0 after 3.5 s"));
  EXPECT_THAT(text, HasSubstr("1 major fault, 2 processes at once"));
  EXPECT_THAT(text, HasSubstr("note: Something is not known.\n"));
  summary.peak_cache = 3_MiB;
  EXPECT_THAT(to_words(run, summary), testing::ContainsRegex("page cache added +3 MiB"));
}

}  // namespace

}  // namespace evenkeel::cli
