#include "profile/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "evenkeel/bytes.h"

namespace evenkeel {

// The style of the picture. It has plain rules only, so that programs with less CSS than browsers
// draw the light picture. Colour-blind readers can tell the colours apart (Okabe and Ito).
constexpr std::string_view kSvgStyle = R"(<style>
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;font-size:12px;fill:#59636e}
.title{font-size:18px;font-weight:600;fill:#1f2328}
.lead{font-size:13px;fill:#1f2328}
.name{font-size:14px;font-weight:600;fill:#1f2328}
.tick{font-size:11px}
.right{text-anchor:end}
.middle{text-anchor:middle}
.bold{font-weight:600;fill:#1f2328}
.paper{fill:#fff}
.grid{fill:none;stroke:#e4e7eb;stroke-width:1}
.floor{fill:none;stroke:#8b949e;stroke-width:1}
.anon{fill:#0072b2}
.file{fill:#e69f00}
.shmem{fill:#009e73}
.cache{fill:none;stroke:#cc79a7;stroke-width:2;stroke-linejoin:round}
.budget{fill:none;stroke:#d55e00;stroke-width:1.5;stroke-dasharray:6 4}
.under{fill:none;stroke:#fff;stroke-width:4;stroke-opacity:.65}
.over{fill:url(#evenkeel-over)}
.hatch{fill:none;stroke:#d55e00;stroke-width:1}
.tint{fill:#d55e00;fill-opacity:.16}
.alarm{font-weight:600;fill:#b34700}
.halo{stroke:#fff;stroke-width:4px;stroke-linejoin:round;paint-order:stroke}
.mark{fill:none;stroke:#8b949e;stroke-width:1;stroke-dasharray:1 2}
.rate{fill:#8b949e}
@media (prefers-color-scheme:dark){
text{fill:#9198a1}
.title,.lead,.name,.bold{fill:#f0f3f6}
.paper{fill:#0d1117}
.grid{stroke:#242a33}
.floor,.mark{stroke:#656d76}
.anon{fill:#2b8fd0}
.budget{stroke:#f27b2c}
.tint{fill:#f27b2c;fill-opacity:.22}
.under{stroke:#0d1117}
.alarm{fill:#ff9a56}
.halo{stroke:#0d1117}
.rate{fill:#656d76}
}
</style>
<defs><pattern id="evenkeel-over" width="7" height="7" patternUnits="userSpaceOnUse"><rect class="tint" width="7" height="7"/><path class="hatch" d="M-1 1l2-2M0 7l7-7M6 8l2-2"/></pattern></defs>
)";

namespace {

constexpr double kSize = 11, kRowHeight = 14, kLongest = 160;
constexpr double kLeastGap = 5;  // lines closer together would look like a grey area

// Rows of labels above a plot.
class Rows {
 public:
  // Takes the first row that is free from `left` on. Empty if there is none.
  std::optional<std::size_t> take(double left, double right) {
    for (std::size_t row = 0; row < free_from_.size(); ++row) {
      if (left < free_from_[row]) continue;
      free_from_[row] = right + 8;
      return row;
    }
    return std::nullopt;
  }

 private:
  std::array<double, kMarkRows> free_from_ = {};
};

}  // namespace

double mark_rows_height(const ProfileRun& run) {
  return run.marks.empty() ? 0 : kMarkRows * kRowHeight;
}

void draw_marks(SvgText& svg, const Frame& frame, const ProfileRun& run, PlotLabels labels) {
  std::vector<ProfileMark> marks = run.marks;
  std::ranges::stable_sort(marks, {}, &ProfileMark::seconds);
  Rows rows;
  double last = -kLeastGap;
  for (const ProfileMark& mark : marks) {
    const double x = frame.x(mark.seconds);
    if (!(x >= 0 && x <= frame.width) || x - last < kLeastGap) continue;
    last = x;
    const std::string shown = fit(mark.text, kSize, kLongest);
    const double width = text_width(shown, kSize);
    const bool leftwards = x + 3 + width > frame.width;
    const double left = leftwards ? x - 3 - width : x + 3;
    const auto row = labels == PlotLabels::kShown ? rows.take(left, left + width) : std::nullopt;
    const double top = row ? -kRowHeight * static_cast<double>(kMarkRows - *row) : 0;
    svg.line("mark", x, top, x, frame.height);
    if (row)
      svg.words(leftwards ? "tick right" : "tick", leftwards ? x - 3 : x + 3, top + 10, shown);
  }
}

namespace {

constexpr double kLeft = kMargin + 62;  // room for the labels of the axis
constexpr double kWidth = kPictureWidth - kMargin - kLeft;

Frame frame_of(const SvgScale& scale, double height, double most) {
  return {.width = kWidth, .height = height, .seconds = scale.seconds, .most = most};
}

// Whether memory is higher in the second half: then there is more room for text in the first.
bool more_at_the_end(const ProfileRun& run, double seconds) {
  std::uint64_t begin = 0, end = 0;
  for (const ProfileSample& sample : run.samples) {
    std::uint64_t& most = sample.seconds < seconds / 2 ? begin : end;
    most = std::max(most, sample.memory());
  }
  return end >= begin;
}

// The label is above the line, or at the upper edge if the line is outside the chart.
void draw_budget_words(SvgText& svg, const Frame& frame, const ProfileReport& report,
                       const SvgScale& scale) {
  const bool left = more_at_the_end(report.runs[0], scale.seconds);
  const double line = scale.budget_in_sight ? frame.y(static_cast<double>(*report.budget)) : 18;
  const std::string where = scale.budget_in_sight ? "" : ", above this chart";
  svg.words(left ? "alarm halo" : "alarm halo right", left ? 4 : kWidth - 4, line - 6,
            "budget " + format_size(*report.budget) +
                (report.runs[0].guarded_peak ? " for guarded files" : "") + where);
}

double draw_main(SvgText& svg, const ProfileReport& report, const SvgScale& scale, double top) {
  const ProfileRun& run = report.runs[0];
  const Frame frame = frame_of(scale, 230, scale.bytes);
  top += 14 + mark_rows_height(run);
  svg.place(kLeft, top);
  draw_grid(svg, frame, size_ticks(scale.bytes, 5), PlotLabels::kShown);
  draw_memory(svg, frame, run);
  if (report.budget && scale.budget_in_sight) draw_budget(svg, frame, run, *report.budget);
  draw_marks(svg, frame, run, PlotLabels::kShown);
  if (run.samples.empty()) svg.words("middle", kWidth / 2, frame.height / 2, "no samples");
  if (report.budget) draw_budget_words(svg, frame, report, scale);
  svg.close("g");
  return top + frame.height;
}

struct Strip {
  std::string words;
  Counter counter;
  std::vector<Tick> (*ticks)(double, int);
};

double draw_strip(SvgText& svg, const ProfileRun& run, const SvgScale& scale, const Strip& strip,
                  double top) {
  Frame frame = frame_of(scale, 44, 1);
  const double most = most_rate(frame, run, strip.counter);
  if (most > 0) frame.most = most * 1.04;
  if (most == 0) frame.height = 4;
  top += 32;
  svg.words("bold", kLeft, top - 8, strip.words + (most > 0 ? "" : ": none"));
  svg.place(kLeft, top);
  draw_grid(svg, frame, strip.ticks(most, 2), PlotLabels::kShown);
  draw_rate(svg, frame, run, strip.counter);
  svg.close("g");
  return top + frame.height;
}

}  // namespace

double draw_single(SvgText& svg, const ProfileReport& report, const SvgScale& scale, double top) {
  const ProfileRun& run = report.runs[0];
  double y = draw_main(svg, report, scale, top + 10);
  y = draw_strip(svg, run, scale,
                 {"read from disk per second", &ProfileSample::disk_read, size_ticks}, y);
  y = draw_strip(svg, run, scale,
                 {"major faults per second", &ProfileSample::major_faults, count_ticks}, y);
  svg.place(kLeft, y);
  draw_times(svg, frame_of(scale, 0, 1), 8);
  svg.close("g");
  return y + 22;
}

namespace {

constexpr double kGridLeft = kMargin + 54;  // room for the labels of the axis, once per row
constexpr double kGap = 22, kPlotHeight = 140, kFoot = 22, kBetweenRows = 26;
constexpr double kBold = 1.12;  // how much wider bold text is

std::size_t columns_for(std::size_t runs) {
  return runs == 4 ? 2 : std::clamp<std::size_t>(runs, 1, 3);
}

// As many whole facts as fit on two lines.
std::vector<std::string> fact_lines(const ProfileRun& run, double width) {
  std::vector<std::string> lines;
  for (const auto& fact : run.facts) {
    const std::string words = fact_words(fact);
    const std::string longer = lines.empty() ? words : lines.back() + " · " + words;
    if (!lines.empty() && text_width(longer, 12) <= width) {
      lines.back() = longer;
    } else if (lines.size() < 2) {
      lines.push_back(fit(words, 12, width));
    } else {
      break;
    }
  }
  return lines;
}

void draw_card_head(SvgText& svg, const ProfileRun& run, std::optional<std::uint64_t> budget,
                    double width) {
  const std::uint64_t peak = summarize(run, budget).peak_memory;
  const std::string peak_words = "peak " + format_size(peak);
  const double room = width - text_width(peak_words, 12 * kBold) - 12;
  svg.words("name", 0, 14, fit(run.name, 14 * kBold, room));
  const bool over = budget && run.guarded_peak.value_or(peak) > *budget;
  svg.words(over ? "alarm right" : "right", width, 14, peak_words);
  double y = 16;
  for (const std::string& line : fact_lines(run, width)) svg.words("", 0, y += 16, line);
}

// The same for all runs, so that the plots are aligned.
double head_height(const ProfileReport& report, double width) {
  std::size_t lines = 0;
  for (const ProfileRun& run : report.runs) lines = std::max(lines, fact_lines(run, width).size());
  return 32 + 16 * static_cast<double>(lines);
}

void draw_plot(SvgText& svg, const ProfileReport& report, const ProfileRun& run,
               const SvgScale& scale, double width, PlotLabels labels) {
  const Frame frame = {.width = width,
                       .height = kPlotHeight,
                       .seconds = scale.seconds,
                       .most = scale.bytes,
                       .column = 2};
  draw_grid(svg, frame, size_ticks(scale.bytes, 4), labels);
  draw_memory(svg, frame, run);
  if (report.budget && scale.budget_in_sight) draw_budget(svg, frame, run, *report.budget);
  draw_marks(svg, frame, run, PlotLabels::kNone);
  if (run.samples.empty()) svg.words("middle", width / 2, kPlotHeight / 2, "no samples");
  draw_times(svg, frame, 5);
}

}  // namespace

double draw_multiples(SvgText& svg, const ProfileReport& report, const SvgScale& scale,
                      double top) {
  const std::size_t columns = columns_for(report.runs.size());
  const double width =
      (kPictureWidth - kMargin - kGridLeft + kGap) / static_cast<double>(columns) - kGap;
  const double head = head_height(report, width);
  double y = top + 22;
  if (report.runs.empty()) {
    svg.words("", kMargin, y, "no runs");
    return y;
  }
  for (std::size_t i = 0; i < report.runs.size(); ++i) {
    const std::size_t column = i % columns;
    if (i > 0 && column == 0) y += head + kPlotHeight + kFoot + kBetweenRows;
    const double x = kGridLeft + static_cast<double>(column) * (width + kGap);
    svg.place(x, y);
    draw_card_head(svg, report.runs[i], report.budget, width);
    svg.close("g");
    svg.place(x, y + head);
    draw_plot(svg, report, report.runs[i], scale, width,
              column == 0 ? PlotLabels::kShown : PlotLabels::kNone);
    svg.close("g");
  }
  return y + head + kPlotHeight + kFoot;
}

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
  if (kinds.file) entries.push_back({"mapped files", "file", false});
  if (kinds.anon) entries.push_back({"anonymous", "anon", false});
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

// Describes the picture for readers who cannot see it.
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
