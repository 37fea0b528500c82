#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evenkeel/profile.h"
#include "profile/page.h"
#include "profile/test_runs.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;
using testing::Not;

std::size_t times(std::string_view text, std::string_view what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(FillPage, ReplacesPlaceholders) {
  EXPECT_EQ(fill_page("{{a}} and {{b}}, {{a}}", {{"a", "1"}, {"b", "2"}}), "1 and 2, 1");
  EXPECT_EQ(fill_page("", {{"a", "1"}}), "");
}

TEST(FillPage, LeavesInsertedTextsAlone) {
  EXPECT_EQ(fill_page("{{a}}{{b}}", {{"a", "{{b}}{{a}}"}, {"b", "{{a}}"}}), "{{b}}{{a}}{{a}}");
  EXPECT_EQ(fill_page("{{a}}b}}", {{"a", "{{"}, {"b", "no"}}), "{{b}}");
}

TEST(FillPage, LeavesOtherBracesAlone) {
  EXPECT_EQ(fill_page("{{{a}}} {{c}} {{a {{", {{"a", "1"}}), "{1} {{c}} {{a {{");
}

TEST(JsonForScript, CannotEndAScriptAndKeepsItsMeaning) {
  EXPECT_EQ(json_for_script("\"</script><!-- \u2028 \u2029 é \u2030\""),
            "\"\\u003c/script>\\u003c!-- \\u2028 \\u2029 é \u2030\"");
}

TEST(Html, HasAllPartsAndNoPlaceholderLeft) {
  const std::string html = to_html(ProfileReport{});
  EXPECT_GT(page_css().size(), 100u);
  EXPECT_GT(page_js().size(), 100u);
  EXPECT_THAT(html, HasSubstr(std::string(page_css())));
  EXPECT_THAT(html, HasSubstr(std::string(page_js())));
  for (const char* place : {"{{title}}", "{{css}}", "{{js}}", "{{data}}"}) {
    EXPECT_GE(times(page_html(), place), 1u) << place;
    EXPECT_THAT(html, Not(HasSubstr(place)));
  }
}

TEST(Html, HostileTextsAddNoMarkup) {
  ProfileReport report;
  report.title = report.subtitle = report.kernel = kHostile;
  ProfileRun run = make_run(1, 3, [](ProfileSample&) {});
  run.name = run.ended = kHostile;
  run.command = run.notes = {kHostile};
  run.facts = {{kHostile, kHostile}};
  run.marks = {{0.5, kHostile}};
  run.files = {{kHostile, 1, {}}};
  report.runs = {run};
  const std::string hostile = to_html(report), plain = to_html(ProfileReport{});
  for (const char* markup : {"<script", "</script", "<!--", "<text", "</"}) {
    EXPECT_EQ(times(hostile, markup), times(plain, markup)) << markup;
  }
  EXPECT_EQ(times(hostile, page_css()), 1u);
  EXPECT_THAT(hostile, HasSubstr(json_for_script(to_json(report))));
}

TEST(Html, LoadsNothingFromTheNetwork) {
  const std::string html = to_html(ProfileReport{});
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  for (const char* reference : {"src=\"http", "href=\"http", "url(http", "@import", "src=\"//"}) {
    EXPECT_THAT(html, Not(HasSubstr(reference)));
  }
}

}  // namespace
}  // namespace evenkeel
