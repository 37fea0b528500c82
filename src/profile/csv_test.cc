#include <gtest/gtest.h>

#include "evenkeel/profile.h"
#include "profile/test_runs.h"

namespace evenkeel {
namespace {

const std::string kHeader =
    "seconds,anon,file,shmem,cache,pss,page_tables,swap,duplicate,disk_read,major_faults,"
    "minor_faults,cache_measured,pss_measured,cpu_seconds,processes\n";

TEST(Csv, IsOnlyTheHeaderWithoutSamples) { EXPECT_EQ(to_csv(ProfileRun{}), kHeader); }

TEST(Csv, HasALineForEachSampleAndNothingWhereUnknown) {
  ProfileRun run;
  run.samples = {{.seconds = 0.25,
                  .anon = 1,
                  .file = 2,
                  .shmem = 3,
                  .duplicate = 8,
                  .cache = 4,
                  .pss = 5,
                  .cache_measured = true,
                  .page_tables = 6,
                  .swap = 7,
                  .disk_read = 18446744073709551614u,
                  .major_faults = 9,
                  .minor_faults = 10,
                  .cpu_seconds = 1.0 / 3,
                  .processes = 12},
                 {.seconds = 100}};
  EXPECT_EQ(to_csv(run), kHeader +
                             "0.25,1,2,3,4,5,6,7,8,18446744073709551614,9,10,1,0,0.333333,12\n"
                             "100,0,0,0,,,0,0,0,0,0,0,0,0,0,0\n");
}

// A spreadsheet may execute text that begins with = + - @, so the CSV contains none.
TEST(Csv, ContainsNoTextOfTheRun) {
  ProfileRun run;
  run.name = run.ended = "=cmd|' /C calc'!A0" + kHostile;
  run.command = run.notes = {run.name};
  run.facts = {{run.name, run.name}};
  run.files = {{run.name, 1, std::nullopt}};
  run.marks = {{0, run.name}};
  run.samples = {{.seconds = 1}};
  EXPECT_EQ(to_csv(run), kHeader + "1,0,0,0,,,0,0,0,0,0,0,0,0,0,0\n");
}

}  // namespace
}  // namespace evenkeel
