#include "profile/svg.h"

#include <algorithm>
#include <cstdio>

#include "evenkeel/bytes.h"
#include "profile/plot_path.h"
#include "profile/svg_style.h"

namespace evenkeel {
namespace {

constexpr double kRoom = kPictureWidth - 2 * kMargin;

std::string seconds_words(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 100 ? "%.1f s" : "%.0f s", seconds);
  return text;
}

// "peak 512 MiB · read 1.2 GiB · 12.3 s · exit code 0"
std::string facts_of(const ProfileReport& report) {
  const ProfileRun& run = report.runs[0];
  const ProfileSummary summary = summarize(run, report.budget);
  std::string words = "peak " + format_size(summary.peak_memory);
  words += " · read " + format_size(summary.disk_read);
  words += " · " + seconds_words(run.seconds);
  if (!run.ended.empty()) words += " · " + run.ended;
  for (const auto& fact : run.facts) words += " · " + fact_words(fact);
  return words;
}

double draw_head(SvgText& svg, const ProfileReport& report, double top) {
  double y = top;
  const bool named_by_run = report.title.empty() && report.runs.size() == 1;
  const std::string& title = named_by_run ? report.runs[0].name : report.title;
  if (!title.empty()) svg.words("title", kMargin, y += 18, fit(title, 18, kRoom));
  y += 4;
  for (const std::string& line : wrap(report.subtitle, 13, kRoom, 2)) {
    svg.words("lead", kMargin, y += 18, line);
  }
  if (report.runs.size() == 1) {
    for (const std::string& line : wrap(facts_of(report), 12, kRoom, 2)) {
      svg.words("", kMargin, y += 18, line);
    }
  }
  if (report.growth) svg.words("", kMargin, y += 18, "Growth since the start, not totals.");
  return y;
}

struct LegendEntry {
  std::string words;
  std::string_view look;
  bool is_line;
};

std::vector<LegendEntry> legend_of(const ProfileReport& report) {
  const KindsDrawn kinds = kinds_of(report);
  std::vector<LegendEntry> entries;
  if (kinds.anon) entries.push_back({"anonymous", "anon", false});
  if (kinds.file) entries.push_back({"mapped files", "file", false});
  if (kinds.shmem) entries.push_back({"shared memory", "shmem", false});
  if (kinds.cache) entries.push_back({"page cache of the files", "cache", true});
  if (report.budget) {
    entries.push_back({"budget " + format_size(*report.budget), "budget", true});
  }
  if (kinds.over) entries.push_back({"over budget", "over", false});
  return entries;
}

double draw_legend(SvgText& svg, const ProfileReport& report, double top) {
  double x = kMargin, y = top + 26;
  for (const LegendEntry& entry : legend_of(report)) {
    const double key = entry.is_line ? 20 : 12, width = key + 6 + text_width(entry.words, 12);
    if (x + width > kPictureWidth - kMargin) {
      x = kMargin;
      y += 18;
    }
    if (entry.is_line) {
      svg.line(entry.look, x, y - 4, x + key, y - 4);
    } else {
      svg.rect(entry.look, x, y - 10, key, 12, 2);
    }
    svg.words("", x + key + 6, y, entry.words);
    x += width + 18;
  }
  return y;
}

// What the picture says, for those who do not see it.
std::string description(const ProfileReport& report) {
  std::string words = report.growth ? "Growth of memory over time." : "Memory over time.";
  if (report.budget) words += " The budget is " + format_size(*report.budget) + ".";
  for (const ProfileRun& run : report.runs) {
    const ProfileSummary summary = summarize(run, report.budget);
    words += " " + run.name + ": peak " + format_size(summary.peak_memory) + ".";
  }
  return words;
}

}  // namespace

SvgScale scale_of(const ProfileReport& report) {
  double seconds = 0, bytes = 0;
  for (const ProfileRun& run : report.runs) {
    seconds = std::max(seconds, run.seconds);
    for (const ProfileSample& sample : run.samples) {
      seconds = std::max(seconds, sample.seconds);
      bytes = std::max(bytes, static_cast<double>(sample.memory()));
    }
  }
  SvgScale scale;
  if (report.budget) {
    const auto budget = static_cast<double>(*report.budget);
    scale.budget_in_sight = bytes == 0 || budget <= 4 * bytes;
    if (scale.budget_in_sight) bytes = std::max(bytes, budget * 1.04);
  }
  scale.seconds = seconds > 0 ? seconds : 1;
  scale.bytes = std::max(bytes * 1.04, 4096.0);
  return scale;
}

std::string fact_words(const std::pair<std::string, std::string>& fact) {
  return fact.second + " " + fact.first;
}

std::string to_svg(const ProfileReport& report) {
  SvgText body;
  const double top = draw_legend(body, report, draw_head(body, report, kMargin - 4));
  const auto draw = report.runs.size() == 1 ? draw_single : draw_multiples;
  const double bottom = draw(body, report, scale_of(report), top) + kMargin - 6;
  const std::string width = tenths(kPictureWidth), height = tenths(bottom);
  SvgText svg;
  svg.open("svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" + height +
           "\" viewBox=\"0 0 " + width + " " + height + "\" role=\"img\"");
  svg.element("title", report.title.empty() ? "Memory over time" : report.title);
  svg.element("desc", description(report));
  svg.raw(kSvgStyle);
  svg.rect("paper", 0, 0, kPictureWidth, bottom, 10);
  svg.raw(body.take());
  svg.close("svg");
  return svg.take();
}

}  // namespace evenkeel
