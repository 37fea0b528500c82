#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "evenkeel/profile.h"
#include "evenkeel/version.h"
#include "profile/json_text.h"
#include "profile/sample_fields.h"
#include "profile/test_runs.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;

std::string written(double value) { return JsonText().real(value).take(); }

TEST(JsonText, WritesNumbersThatReadBackTheSame) {
  EXPECT_EQ(written(0), "0");
  EXPECT_EQ(written(0.1), "0.1");
  EXPECT_EQ(written(-12.5), "-12.5");
  for (const double value : {1.0 / 3, 1e300, 5e-324, 123456789.123456789, -2.5e-10}) {
    EXPECT_EQ(std::strtod(written(value).c_str(), nullptr), value);
  }
  EXPECT_EQ(JsonText().whole(std::numeric_limits<std::uint64_t>::max()).take(),
            "18446744073709551615");
}

TEST(JsonText, WritesNullForNanAndInfinity) {
  EXPECT_EQ(written(std::nan("")), "null");
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "null");
}

TEST(JsonText, EscapesQuotesAndControlCharacters) {
  EXPECT_EQ(json_quoted("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_quoted(std::string_view("\0\n\x1f\x7f", 4)), R"("\u0000\u000a\u001f\u007f")");
  EXPECT_EQ(json_quoted("é€😀"), "\"é€😀\"");
}

TEST(JsonText, ReplacesBytesThatAreNotUtf8) {
  const std::string replaced = "\uFFFD";
  EXPECT_EQ(json_quoted("a\xff"
                        "b"),
            "\"a" + replaced + "b\"");
  EXPECT_EQ(json_quoted("\xc3"), "\"" + replaced + "\"");                   // cut off
  EXPECT_EQ(json_quoted("\xc0\xaf"), "\"" + replaced + replaced + "\"");    // overlong
  EXPECT_EQ(json_quoted("\xe2\x82z"), "\"" + replaced + replaced + "z\"");  // cut off, then more
  EXPECT_EQ(json_quoted("\xed\xa0\x80"),
            "\"" + replaced + replaced + replaced + "\"");                     // surrogate
  EXPECT_EQ(json_quoted("\xf4\x90\x80\x80").size(), 2 + 4 * replaced.size());  // above U+10FFFF
}

TEST(JsonText, PutsCommasOnlyBetweenValues) {
  JsonText json;
  json.open('{').key("a").open('[').whole(1).text(":").open('[').close(']').null().close(']');
  json.key("b").flag(true).key("c").open('{').close('}').close('}');
  EXPECT_EQ(json.take(), R"({"a":[1,":",[],null],"b":true,"c":{}})");
}

ProfileReport full_report() {
  ProfileReport report;
  report.title = "title";
  report.subtitle = kHostile;
  report.growth = true;
  report.budget = 150;
  report.kernel = "Linux 6.18.0";
  report.cpus = 2;
  report.memory = 25'000'000'000;
  report.readahead = 131072;
  ProfileRun run = make_run(20, 41, [](ProfileSample& sample) {
    std::uint64_t value = static_cast<std::uint64_t>(sample.seconds * 2);
    for (const SampleField& field : kSampleSizes) sample.*field.value = value += 10;
    for (const SampleField& field : kSampleCounters) sample.*field.value = value += 10;
    sample.cpu_seconds = sample.seconds / 3;
    sample.processes = 7;
  });
  run.samples[1].cache = run.samples[2].pss = ProfileSample::kUnknown;
  run.command = {"python", "train.py", "\xff"};
  run.started = "2026-11-15T11:20:00Z";
  run.interval_seconds = 0.01;
  run.ended = "exit code 0";
  run.own_cpu_seconds = 0.05;
  run.notes = {"one", "two"};
  run.facts = {{"rows/s", "295,210"}, {"a \"b\"", "c"}};
  run.files = {{"/a", 123, 45}, {"/b", 6, std::nullopt}};
  run.marks = {{1.25, "epoch 2"}};
  report.runs = {run, ProfileRun{}};
  return report;
}

TEST(Json, HasOneNewlineAtTheEnd) {
  const std::string text = to_json(full_report());
  EXPECT_EQ(text.find('\n'), text.size() - 1);
}

TEST(Json, RoundsTimesToMicroseconds) {
  ProfileReport report = full_report();
  report.runs[0].seconds = 1.0 / 3;
  EXPECT_THAT(to_json(report), HasSubstr("\"seconds\":0.333333,"));
}

}  // namespace
}  // namespace evenkeel

// Builds with the tool have a JSON parser; the library needs none.
#if __has_include(<nlohmann/json.hpp>)
#include <nlohmann/json.hpp>

namespace evenkeel {
namespace {

using nlohmann::json;

json column(const ProfileRun& run, std::uint64_t ProfileSample::*field) {
  json all = json::array();
  for (const ProfileSample& sample : run.samples) {
    const std::uint64_t value = sample.*field;
    all.push_back(value == ProfileSample::kUnknown ? json() : json(value));
  }
  return all;
}

json maybe(const auto& value) { return value ? json(*value) : json(); }

TEST(Json, OfTheReportReadsBackFieldByField) {
  const ProfileReport report = full_report();
  const json read = json::parse(to_json(report));
  EXPECT_EQ(read.size(), 7u);
  EXPECT_EQ(read["evenkeel"], EVENKEEL_VERSION);
  EXPECT_EQ(read["title"], "title");
  EXPECT_THAT(read["subtitle"].get<std::string>(), HasSubstr("<script>alert(1)</script>{{css}}"));
  EXPECT_EQ(read["growth"], true);
  EXPECT_EQ(read["budget_bytes"], 150);
  EXPECT_EQ(read["machine"], json({{"kernel", "Linux 6.18.0"},
                                   {"cpus", 2},
                                   {"memory_bytes", 25'000'000'000},
                                   {"readahead_bytes", 131072}}));
  EXPECT_EQ(read["runs"].size(), 2u);
}

TEST(Json, OfARunReadsBackFieldByField) {
  const ProfileReport report = full_report();
  const json read = json::parse(to_json(report))["runs"][0];
  EXPECT_EQ(read.size(), 14u);
  EXPECT_EQ(read["name"], "run");
  EXPECT_EQ(read["command"], json({"python", "train.py", "\uFFFD"}));
  EXPECT_EQ(read["started"], "2026-11-15T11:20:00Z");
  EXPECT_EQ(read["seconds"], 20);
  EXPECT_EQ(read["interval_seconds"], 0.01);
  EXPECT_EQ(read["ended"], "exit code 0");
  EXPECT_EQ(read["own_cpu_seconds"], 0.05);
  EXPECT_TRUE(read["guarded_peak_bytes"].is_null());
  EXPECT_EQ(read["notes"], json({"one", "two"}));
  EXPECT_EQ(read["facts"], json({{"rows/s", "295,210"}, {"a \"b\"", "c"}}));
  EXPECT_EQ(read["files"], json::parse(R"([{"path":"/a","size_bytes":123,"cached_before_bytes":45},
                            {"path":"/b","size_bytes":6,"cached_before_bytes":null}])"));
  EXPECT_EQ(read["marks"], json::parse(R"([{"seconds":1.25,"text":"epoch 2"}])"));
}

TEST(Json, OfSamplesHasAColumnForEachNumber) {
  const ProfileRun run = full_report().runs[0];
  const json read = json::parse(to_json(full_report()))["runs"][0]["samples"];
  EXPECT_EQ(read.size(), 16u);
  for (const SampleField& field : kSampleSizes) {
    EXPECT_EQ(read[std::string(field.name)], column(run, field.value)) << field.name;
  }
  for (const SampleField& field : kSampleCounters) {
    EXPECT_EQ(read[std::string(field.name)], column(run, field.value)) << field.name;
  }
  EXPECT_EQ(read["seconds"][3], 1.5);
  EXPECT_NEAR(read["cpu_seconds"][40].get<double>(), 20.0 / 3, 1e-6);
  EXPECT_EQ(read["processes"], json(std::vector<int>(41, 7)));
}

TEST(Json, OfTheSummaryIsTheResultOfSummarize) {
  const ProfileReport report = full_report();
  const ProfileSummary summary = summarize(report.runs[0], report.budget);
  const json read = json::parse(to_json(report))["runs"][0]["summary"];
  EXPECT_EQ(read.size(), 11u);
  EXPECT_EQ(read["trend"], summary.trend);
  EXPECT_EQ(read["file_at_peak_bytes"], summary.file_at_peak);
  EXPECT_EQ(read["limits"].at(0)["bytes"], summary.peak_rss);
  EXPECT_EQ(read["peak_bytes"], json({{"anon", summary.peak_anon},
                                      {"file", summary.peak_file},
                                      {"shmem", summary.peak_shmem},
                                      {"rss", summary.peak_rss},
                                      {"memory", summary.peak_memory},
                                      {"unreclaimable", summary.peak_unreclaimable},
                                      {"page_tables", summary.peak_page_tables},
                                      {"swap", summary.peak_swap},
                                      {"cache", maybe(summary.peak_cache)},
                                      {"pss", maybe(summary.peak_pss)}}));
  EXPECT_EQ(read["slope_bytes_per_minute"], json({{"rss", maybe(summary.slope_rss)},
                                                  {"anon", maybe(summary.slope_anon)},
                                                  {"memory", maybe(summary.slope_memory)}}));
  EXPECT_NEAR(summary.slope_anon.value(), 120, 1);  // full_report grows by 2 per second
  EXPECT_EQ(read["seconds_over_budget"], summary.seconds_over_budget);
  EXPECT_EQ(read["disk_read_bytes"], summary.disk_read);
  EXPECT_EQ(read["major_faults"], summary.major_faults);
  EXPECT_EQ(read["minor_faults"], summary.minor_faults);
  EXPECT_NEAR(read["cpu_seconds"].get<double>(), summary.cpu_seconds, 1e-6);
  EXPECT_EQ(read["most_processes"], 7);
}

TEST(Json, OfAnEmptyRunHasNullForUnknownValues) {
  ProfileReport report;
  report.runs.resize(1);
  const json read = json::parse(to_json(report));
  EXPECT_TRUE(read["budget_bytes"].is_null());
  EXPECT_TRUE(read["machine"]["readahead_bytes"].is_null());
  const json& summary = read["runs"][0]["summary"];
  EXPECT_TRUE(summary["peak_bytes"]["cache"].is_null());
  EXPECT_TRUE(summary["slope_bytes_per_minute"]["rss"].is_null());
  EXPECT_EQ(read["runs"][0]["samples"]["anon"], json::array());
}

}  // namespace
}  // namespace evenkeel
#endif
