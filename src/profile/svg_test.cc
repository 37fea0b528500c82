#include "profile/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "evenkeel/bytes.h"
#include "profile/test_path.h"
#include "profile/test_runs.h"

namespace evenkeel {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kMainHeight = 230;  // of the chart of a single run

// Returns what is wrong with the XML: tags that do not match, or a bare `<` or `&`.
std::string xml_problem(std::string_view text) {
  std::vector<std::string> open;
  while (!text.empty()) {
    const std::size_t tag = text.find('<');
    for (std::string_view words = text.substr(0, tag); words.find('&') != words.npos;) {
      words.remove_prefix(words.find('&'));
      if (words.find(';') > 6) return "bare &";
      words.remove_prefix(1);
    }
    if (tag == text.npos) break;
    const std::size_t end = text.find('>', tag);
    if (end == text.npos) return "unclosed tag";
    const std::string_view inside = text.substr(tag + 1, end - tag - 1);
    text.remove_prefix(end + 1);
    if (inside.find('<') != inside.npos) return "< in a tag";
    if (std::ranges::count(inside, '"') % 2 != 0) return "odd quotes: " + std::string(inside);
    if (inside.ends_with('/')) continue;
    const std::string name(inside.substr(0, inside.find(' ')));
    if (!name.starts_with('/')) {
      open.push_back(name);
    } else if (open.empty() || "/" + open.back() != name) {
      return "unexpected " + name;
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

// The `d` of every path with that class, except those in the legend.
std::vector<std::string> paths(const std::string& svg, const std::string& look) {
  std::vector<std::string> all;
  const std::string begin = "<path class=\"" + look + "\" d=\"";
  for (std::size_t at = svg.find(begin); at != svg.npos; at = svg.find(begin, at + 1)) {
    const std::size_t from = at + begin.size();
    all.push_back(svg.substr(from, svg.find('"', from) - from));
  }
  std::erase_if(all, [](const std::string& d) { return d.find('L') != d.npos; });
  return all;
}

double top_of(const std::string& path) {
  return std::ranges::min(points_of_path(path), {}, &Point::y).y;
}

ProfileReport report_of(std::vector<ProfileRun> runs, std::optional<std::uint64_t> budget = {}) {
  ProfileReport report;
  report.title = "title";
  report.budget = budget;
  report.runs = std::move(runs);
  return report;
}

ProfileRun flat(std::uint64_t anon, std::uint64_t file = 0) {
  return make_run(10, 100, [=](ProfileSample& sample) {
    sample.anon = anon;
    sample.file = file;
  });
}

TEST(Svg, StacksTheKindsToScale) {
  const ProfileReport report = report_of({flat(40_MiB, 60_MiB)});
  const std::string svg = to_svg(report);
  const double pixels_a_mib = kMainHeight / (scale_of(report).bytes / 1_MiB);
  ASSERT_EQ(paths(svg, "anon").size(), 1u);
  EXPECT_NEAR(top_of(paths(svg, "anon")[0]), kMainHeight - 100 * pixels_a_mib, 0.1);
  EXPECT_NEAR(top_of(paths(svg, "file")[0]), kMainHeight - 60 * pixels_a_mib, 0.1);
  EXPECT_EQ(paths(svg, "shmem").size(), 0u);  // there was none
}

TEST(Svg, DrawsASpikeOfOneSampleAmongThousandsInFull) {
  ProfileRun run = make_run(100, 8000, [](ProfileSample& sample) { sample.anon = 10_MiB; });
  run.samples[4321].anon = 90_MiB;
  const ProfileReport report = report_of({run});
  const double want = kMainHeight * (1 - 90.0 / (scale_of(report).bytes / 1_MiB));
  EXPECT_NEAR(top_of(paths(to_svg(report), "anon").at(0)), want, 0.1);
}

TEST(Svg, EqualRunsLookEqualBesideAnUnequalOne) {
  const auto drawn = paths(to_svg(report_of({flat(10_MiB), flat(500_MiB), flat(10_MiB)})), "anon");
  ASSERT_EQ(drawn.size(), 3u);
  EXPECT_EQ(drawn[0], drawn[2]);
  EXPECT_LT(top_of(drawn[1]), top_of(drawn[0]));
}

TEST(Svg, UnknownPageCacheIsAGapInItsLine) {
  ProfileRun run = flat(10_MiB);
  for (std::size_t i = 0; i < 100; ++i) run.samples[i].cache = 5_MiB;
  run.samples[40].cache = run.samples[41].cache = ProfileSample::kUnknown;
  const auto drawn = paths(to_svg(report_of({run})), "cache");
  ASSERT_EQ(drawn.size(), 1u);
  EXPECT_EQ(std::ranges::count(drawn[0], 'M'), 2);
  EXPECT_THAT(to_svg(report_of({flat(1_MiB)})), Not(HasSubstr("page cache of the files")));
}

TEST(Svg, HatchesAndNamesMemoryOverTheBudget) {
  const std::string over = to_svg(report_of({flat(90_MiB)}, 64_MiB));
  EXPECT_EQ(paths(over, "over").size(), 1u);
  EXPECT_THAT(over, AllOf(HasSubstr(">over budget<"), HasSubstr(">budget 64 MiB<")));
  const std::string within = to_svg(report_of({flat(60_MiB)}, 64_MiB));
  EXPECT_EQ(paths(within, "over").size(), 0u);
  EXPECT_THAT(within, AllOf(Not(HasSubstr(">over budget<")), HasSubstr(">budget 64 MiB<")));
}

TEST(Svg, ABudgetFarAboveIsNamedAndDoesNotFlattenTheChart) {
  const ProfileReport report = report_of({flat(10_MiB)}, 64_GiB);
  EXPECT_LT(scale_of(report).bytes, 12.0 * 1_MiB);
  EXPECT_THAT(to_svg(report), HasSubstr("budget 64 GiB, above this chart"));
}

// The class of the text with exactly these words.
std::string look_of(const std::string& svg, const std::string& words) {
  const std::size_t end = svg.find(">" + words + "<");
  if (end == svg.npos) return "(missing)";
  const std::size_t begin = svg.rfind("class=\"", end) + 7;
  return svg.substr(begin, svg.find('"', begin) - begin);
}

TEST(Svg, CardsHaveNameFactsAndPeak) {
  ProfileRun run = flat(10_MiB);
  run.name = "direct";
  run.facts = {{"rows/s", "295,210"}};
  const std::string svg = to_svg(report_of({run, flat(90_MiB)}, 64_MiB));
  EXPECT_EQ(look_of(svg, "direct"), "name");
  EXPECT_EQ(look_of(svg, "295,210 rows/s"), "");
  EXPECT_EQ(look_of(svg, "peak 10 MiB"), "right");
  EXPECT_EQ(look_of(svg, "peak 90 MiB"), "alarm right");
}

TEST(Svg, RatesAreTheGrowthOfACounterOverTime) {
  ProfileRun run = flat(10_MiB);
  for (ProfileSample& s : run.samples) s.disk_read = static_cast<std::uint64_t>(s.seconds * 1e6);
  const Frame frame = {.width = 100, .height = 44, .seconds = 10};
  EXPECT_NEAR(most_rate(frame, run, &ProfileSample::disk_read), 1e6, 100);
  EXPECT_EQ(most_rate(frame, run, &ProfileSample::major_faults), 0);
  EXPECT_THAT(to_svg(report_of({run})), HasSubstr(">major faults per second: none<"));
}

TEST(Svg, MarksThatWouldOverlapLoseTheirLabelsButNotTheirLines) {
  ProfileRun run = flat(10_MiB);
  run.marks = {{1, "first mark"}, {1.1, "second mark"}, {1.2, "third mark"}, {9, "last mark"}};
  const std::string svg = to_svg(report_of({run}));
  EXPECT_THAT(svg, AllOf(HasSubstr(">first mark<"), HasSubstr(">second mark<"),
                         Not(HasSubstr(">third mark<")), HasSubstr(">last mark<")));
  std::size_t lines = 0;
  for (std::size_t at = 0; (at = svg.find("class=\"mark\"", at)) != svg.npos; ++at) ++lines;
  EXPECT_EQ(lines, 4u);
}

TEST(Svg, HostileTextsStayText) {
  ProfileRun run = flat(10_MiB);
  run.name = run.ended = kHostile;
  run.facts = {{kHostile, kHostile}};
  run.marks = {{1, kHostile}};
  for (const std::size_t runs : {1u, 3u}) {
    ProfileReport report = report_of(std::vector(runs, run), 1_MiB);
    report.title = report.subtitle = kHostile;
    const std::string svg = to_svg(report);
    EXPECT_EQ(xml_problem(svg), "");
    EXPECT_THAT(svg, Not(HasSubstr("<script")));
    EXPECT_TRUE(std::ranges::none_of(svg, [](char c) { return c == '\x01' || c == '\xff'; }));
  }
}

TEST(Svg, LongNamesAreCutWithAnEllipsis) {
  ProfileRun run = flat(10_MiB);
  run.name = std::string(500, 'x');
  const std::string svg = to_svg(report_of({run, run}));
  EXPECT_THAT(svg, HasSubstr("xxx…<"));
  EXPECT_THAT(fit("naïve 日本語 text", 12, 60), testing::EndsWith("…"));
  EXPECT_EQ(fit("short", 12, 60), "short");
}

TEST(Wrap, FillsLinesAndCutsTheLast) {
  const auto lines = wrap("one two three four five six seven eight nine ten", 10, 80, 2);
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) EXPECT_LE(text_width(line, 10), 80) << line;
  EXPECT_TRUE(lines[0].starts_with("one two"));
  EXPECT_TRUE(lines[1].ends_with("…"));
  EXPECT_THAT(wrap("", 10, 80, 2), ElementsAre());
}

TEST(Svg, MayHaveNoRunsAndRunsWithNoOrOneSample) {
  const ProfileRun none = make_run(0, 0, [](ProfileSample&) {});
  const ProfileRun one = make_run(0, 1, [](ProfileSample& sample) { sample.anon = 1_MiB; });
  for (const auto& runs : {std::vector<ProfileRun>{}, {none}, {one}, {none, one}}) {
    const std::string svg = to_svg(report_of(runs, 1_MiB));
    EXPECT_EQ(xml_problem(svg), "");
    EXPECT_THAT(svg, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf"))));
  }
  EXPECT_THAT(to_svg(report_of({})), HasSubstr("no runs"));
  EXPECT_THAT(to_svg(report_of({none})), HasSubstr("no samples"));
  EXPECT_EQ(paths(to_svg(report_of({one})), "anon").size(), 1u);
}

TEST(Svg, IsSmallEvenIfTheRunsAreNoisy) {
  std::mt19937 random(1);
  const ProfileRun noisy = make_run(60, ProfileSeries::kMost, [&](ProfileSample& sample) {
    sample.anon = random() % 64_MiB;
    sample.file = random() % 64_MiB;
    sample.cache = random() % 64_MiB;
  });
  EXPECT_LT(to_svg(report_of(std::vector(6, noisy), 256_MiB)).size(), 60'000u);
  EXPECT_LT(to_svg(report_of({noisy}, 256_MiB)).size(), 60'000u);
}

TEST(Svg, HasADescription) {
  const std::string svg = to_svg(report_of({flat(10_MiB)}, 64_MiB));
  EXPECT_THAT(svg, AllOf(HasSubstr("<title>title</title>"), HasSubstr("role=\"img\""),
                         HasSubstr("The budget is 64 MiB. run: peak 10 MiB.</desc>")));
}

}  // namespace
}  // namespace evenkeel
