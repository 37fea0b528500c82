#include "cli/guard_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/bytes.h"

namespace evenkeel::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

TEST(WhyUnguarded, SaysNothingWhereItCanBeGuarded) {
  EXPECT_EQ(why_unguarded({ProgramKind::kDynamic, "/bin/a"}), "");
  EXPECT_EQ(why_unguarded({ProgramKind::kUnknown, ""}), "");
}

TEST(WhyUnguarded, NamesTheProgramAndTheReason) {
  for (const ProgramKind kind :
       {ProgramKind::kStatic, ProgramKind::kForeign, ProgramKind::kPrivileged}) {
    EXPECT_THAT(why_unguarded({kind, "/bin/a"}), HasSubstr("/bin/a "));
    EXPECT_THAT(why_unguarded({kind, "/bin/a"}), HasSubstr("unguarded"));
    EXPECT_THAT(why_unguarded({kind, "/bin/a"}), Not(HasSubstr("\n")));  // one line
  }
  EXPECT_THAT(why_unguarded({ProgramKind::kStatic, "a"}),
              HasSubstr("--pid N (needs CAP_SYS_NICE)"));
  EXPECT_THAT(why_unguarded({ProgramKind::kPrivileged, "a"}), HasSubstr("setuid"));
}

class GuardWords : public testing::Test {
 protected:
  GuardWords() {
    report_.budget = 256_MiB;
    report_.peak_cached = report_.guarded_peak = 230_MiB;
    report_.bytes_released = 4_GiB;
    report_.cpu_seconds = 0.25;
    run_.ended = "exit code 0";
    run_.seconds = 12.5;
    summary_.disk_read = 4_GiB;
    summary_.peak_rss = 300_MiB;
    summary_.peak_anon = 60_MiB;
    summary_.peak_file = 240_MiB;
  }
  std::string words(std::size_t files = 1) { return guard_words(report_, files, run_, summary_); }

  GuardReport report_;
  ProfileRun run_;
  ProfileSummary summary_;
};

TEST_F(GuardWords, SayWhatHappened) {
  EXPECT_EQ(words(2),
            "guard: exit code 0 after 12.5 s, budget 256 MiB\n"
            "  mapped files            2 guarded, 230 MiB of them in memory at the peak\n"
            "  released                4 GiB\n"
            "  read from disk          4 GiB\n"
            "  peak RSS                300 MiB (anon 60 MiB, file 240 MiB)\n"
            "  access                  left as it was\n"
            "  cost                    2.0 % of a core\n");
}

TEST_F(GuardWords, SayWhereThereWasNothingToDo) {
  EXPECT_THAT(words(0), HasSubstr("none that are guarded (see --min, --files)"));
  EXPECT_THAT(words(0), Not(HasSubstr("released")));
  EXPECT_THAT(words(0), Not(HasSubstr("access")));
  EXPECT_THAT(words(0), HasSubstr("peak RSS"));
}

TEST_F(GuardWords, DoNotSayThatFilesWhichFitWereNeverInMemory) {
  report_.peak_cached = report_.guarded_peak = 0;
  report_.file_bytes = 200_MiB;
  EXPECT_THAT(words(2), HasSubstr("2 guarded, all fit the budget\n"));
  report_.file_bytes = 300_MiB;
  EXPECT_THAT(words(2), HasSubstr("2 guarded, 0 B of them in memory at the peak\n"));
}

TEST_F(GuardWords, CountSwitches) {
  report_.switches_to_random = 1;
  EXPECT_THAT(words(), HasSubstr("readahead off once\n"));
  report_.switches_to_random = 2;
  report_.switches_to_readahead = 1;
  EXPECT_THAT(words(), HasSubstr("readahead off twice, on again once\n"));
  report_.switches_to_random = 1234;
  report_.switches_to_readahead = 1000;
  EXPECT_THAT(words(), HasSubstr("readahead off 1,234 times, on again 1,000 times\n"));
}

TEST_F(GuardWords, SayWhichBudgetWouldHoldFilesThatAreReadAgainAndAgain) {
  report_.file_bytes = 2_GiB;
  report_.bytes_fetched = 3_GiB;
  EXPECT_THAT(words(1), Not(HasSubstr("would hold")));
  report_.bytes_fetched = 14_GiB;
  EXPECT_THAT(words(1), HasSubstr("read 7.0 × the file; a budget of 2 GiB would hold it\n"));
  EXPECT_THAT(words(3), HasSubstr("read 7.0 × the files; a budget of 2 GiB would hold them\n"));
}

TEST_F(GuardWords, NoteWhatDidNotWork) {
  report_.failures = {"a file cannot be opened", "pages stay"};
  EXPECT_THAT(words(), HasSubstr("note: a file cannot be opened\n"));
  EXPECT_THAT(words(), HasSubstr("note: pages stay\n"));
}

TEST_F(GuardWords, ARunOfNoTimeCostsSomethingFinite) {
  run_.seconds = 0;
  EXPECT_THAT(words(), Not(HasSubstr("inf")));
}

TEST_F(GuardWords, AreFactsOfAProfile) {
  report_.switches_to_random = 1;
  report_.failures = {"pages stay"};
  add_guard_facts(run_, report_, 1);
  EXPECT_THAT(run_.facts,
              testing::ElementsAre(Pair("guard: most of mapped files in memory", "230 MiB"),
                                   Pair("guard: released", "4 GiB"),
                                   Pair("guard: access", "readahead off once")));
  EXPECT_THAT(run_.notes, testing::ElementsAre("guard: pages stay"));
}

// The budget covers the guarded files. What else the program uses is no overrun.
TEST_F(GuardWords, TheVerdictIsAboutTheGuardedFiles) {
  ProfileSummary summary;
  summary.peak_memory = 3_GiB;
  EXPECT_EQ(
      guard_verdict(report_, summary),
      "The guarded files stayed within the budget of 256 MiB. They reached 230 MiB. The whole "
      "program reached 3 GiB, which the budget does not cover.");
  report_.peak_cached = report_.guarded_peak = 300_MiB;
  EXPECT_THAT(guard_verdict(report_, summary),
              HasSubstr("The guarded files reached 300 MiB, with a budget of 256 MiB."));

  run_.samples = {{.seconds = 0}, {.seconds = 1, .anon = 3_GiB}};
  EXPECT_EQ(summarize(run_, 256_MiB).seconds_over_budget, 1);
  add_guard_facts(run_, report_, 1);
  EXPECT_EQ(run_.guarded_peak, 300_MiB);
  EXPECT_EQ(summarize(run_, 256_MiB).seconds_over_budget, 0);
}

TEST_F(GuardWords, WhatWasCachedBeforeIsNotOverTheBudget) {
  report_.peak_cached = 2_GiB;
  EXPECT_THAT(words(2), HasSubstr("2 guarded, 230 MiB of them in memory at the peak\n"));
  EXPECT_THAT(words(2), HasSubstr("2 GiB with what was cached before they were guarded\n"));
  EXPECT_THAT(guard_verdict(report_, summary_),
              HasSubstr("stayed within the budget of 256 MiB. They reached 230 MiB."));
  add_guard_facts(run_, report_, 2);
  EXPECT_EQ(run_.guarded_peak, 230_MiB);
  EXPECT_THAT(run_.facts, testing::Contains(Pair("guard: at the start",
                                                 "2 GiB with what was cached before they were "
                                                 "guarded")));
}

TEST_F(GuardWords, WithoutFailuresThereAreNoNotes) {
  add_guard_facts(run_, report_, 1);
  EXPECT_THAT(run_.notes, IsEmpty());
}

}  // namespace
}  // namespace evenkeel::cli
