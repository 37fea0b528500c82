#include "cli/stats_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "profile/page.h"
#include "profile/svg_text.h"

namespace evenkeel::cli {
namespace {

constexpr std::size_t kMostCharts = 400;  // more would make the page slow

constexpr char kStatsPage[] = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{title}}</title>
<link rel="icon" href="data:,">
<style>
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1b1f24; --quiet: #57606a; --rule: #d8dee4; --bar: #0072b2;
}
@media (prefers-color-scheme: dark) {
  :root { --paper: #14181d; --ink: #e6e9ec; --quiet: #a3adb8; --rule: #333c46; --bar: #2b8fd0; }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
main { max-width: 76rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { margin: 0 0 1rem; font-size: 1.75rem; line-height: 1.2; overflow-wrap: anywhere; }
h2 { margin: 2.5rem 0 0.75rem; font-size: 1.2rem; }
h3 { margin: 0; font-size: 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.1rem 1rem; margin: 0; }
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(18rem, 1fr)); gap: 1.25rem; }
.chart { border: 1px solid var(--rule); border-radius: 6px; padding: 0.9rem 1rem 1rem; }
.chart dl { font-size: 0.85rem; margin-top: 0.5rem; }
svg { display: block; width: 100%; height: auto; margin-top: 0.5rem; }
svg text { font-size: 11px; fill: var(--quiet); }
.bar { fill: var(--bar); }
.base { stroke: var(--quiet); stroke-width: 1; }
.right { text-anchor: end; }
.quiet { color: var(--quiet); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.15rem 1rem 0.15rem 0; }
th { color: var(--quiet); font-weight: 400; }
td.share { width: 16rem; padding-right: 0; }
td.share svg { margin: 0; }
</style>
</head>
<body>
<main>
<h1>{{title}}</h1>
{{body}}
</main>
</body>
</html>
)";

std::string fact(std::string_view name, std::string_view value) {
  return fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_markup(name), escape_markup(value));
}

std::string count_text(double count) {
  return with_commas(static_cast<std::uint64_t>(std::llround(count)));
}

std::string histogram_svg(const NumberStats& stats) {
  constexpr double kWidth = 300, kHeight = 90, kFoot = 16;
  double most = 1;
  for (const HistogramBin& bin : stats.histogram) most = std::max(most, bin.count);
  SvgText svg;
  svg.open(fmt::format("svg viewBox=\"0 0 {} {}\" role=\"img\"", kWidth, kHeight + kFoot));
  svg.element("title", "histogram");
  const double width = kWidth / static_cast<double>(stats.histogram.size());
  for (std::size_t i = 0; i < stats.histogram.size(); ++i) {
    const HistogramBin& bin = stats.histogram[i];
    if (bin.count <= 0) continue;
    const double height = std::max(1.0, bin.count / most * kHeight);
    svg.open("g");
    svg.element("title", fmt::format("{} to {}: {}", number_text(bin.begin), number_text(bin.end),
                                     count_text(bin.count)));
    svg.rect("bar", double(i) * width, kHeight - height, std::max(1.0, width - 1), height);
    svg.close("g");
  }
  svg.line("base", 0, kHeight, kWidth, kHeight);
  svg.words("left", 0, kHeight + kFoot - 3, number_text(stats.histogram.front().begin));
  svg.words("right", kWidth, kHeight + kFoot - 3, number_text(stats.histogram.back().end));
  svg.close("svg");
  return svg.take();
}

std::string chart(const std::string& name, const NumberStats& stats, const StatsPage& page) {
  std::string html = fmt::format("<section class=\"chart\">\n<h3>{}</h3>\n", escape_markup(name));
  if (stats.count > 0) html += histogram_svg(stats);
  html += "<dl>\n";
  if (stats.count > 0) {
    html += fact("mean", fmt::format("{}, standard deviation {}", number_text(stats.mean),
                                     number_text(std::sqrt(stats.variance))));
    html += fact("range", fmt::format("{} to {}", number_text(stats.min), number_text(stats.max)));
    for (std::size_t i = 0; i < stats.quantiles.size(); ++i) {
      html += fact(quantile_name(page.quantiles[i]), number_text(stats.quantiles[i]));
    }
  }
  html += fact("numbers", with_commas(stats.count));
  if (stats.nan > 0) html += fact("NaN", with_commas(stats.nan));
  if (stats.positive_infinity > 0) html += fact("+inf", with_commas(stats.positive_infinity));
  if (stats.negative_infinity > 0) html += fact("-inf", with_commas(stats.negative_infinity));
  if (stats.below + stats.above >= 0.5) {
    html += fact("not drawn",
                 fmt::format("about {} further out", count_text(stats.below + stats.above)));
  }
  return html + "</dl>\n</section>\n";
}

std::string tokens_table(const StatsReport& report) {
  std::string html = "<h2>Most frequent tokens</h2>\n<table>\n<tr><th>token</th><th>count</th>";
  html += "<th>share</th><th></th></tr>\n";
  const double most = double(report.most_frequent.front().count);
  for (const TokenCount& one : report.most_frequent) {
    SvgText svg;
    svg.open("svg viewBox=\"0 0 256 12\" aria-hidden=\"true\"");
    svg.rect("bar", 0, 1, std::max(1.0, double(one.count) / most * 256), 10);
    svg.close("svg");
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{:.3f} %</td><td class=\"share\">{}</td></tr>\n", one.token,
        with_commas(one.count), 100 * double(one.count) / double(report.tokens), svg.take());
  }
  return html + "</table>\n";
}

}  // namespace

std::string number_text(double value) { return fmt::format("{:.6g}", value); }

std::string quantile_name(double q) { return q == 0.5 ? "median" : fmt::format("{:g} %", 100 * q); }

std::string stats_html(const StatsPage& page, const StatsReport& report) {
  std::string body = "<dl>\n";
  for (const auto& [name, value] : page.facts) body += fact(name, value);
  body += "</dl>\n";
  if (report.lengths) {
    body += "<h2>Lengths</h2>\n<div class=\"charts\">\n";
    body += chart(page.length_unit, *report.lengths, page) + "</div>\n";
  }
  if (!report.most_frequent.empty()) body += tokens_table(report);
  if (!report.columns.empty()) {
    body += "<h2>Columns</h2>\n<div class=\"charts\">\n";
    const std::size_t shown = std::min(report.columns.size(), kMostCharts);
    for (std::size_t i = 0; i < shown; ++i) {
      body += chart(fmt::format("column {}", i), report.columns[i], page);
    }
    body += "</div>\n";
    if (shown < report.columns.size()) {
      body += fmt::format("<p class=\"quiet\">The first {} of {} columns; --json has all.</p>\n",
                          shown, with_commas(report.columns.size()));
    }
  }
  return fill_page(kStatsPage, {{"title", escape_markup(page.title)}, {"body", body}});
}

}  // namespace evenkeel::cli
