#include <algorithm>

#include "evenkeel/bytes.h"
#include "profile/svg.h"
#include "profile/svg_marks.h"

namespace evenkeel {
namespace {

constexpr double kGridLeft = kMargin + 54;  // room for the labels of the axis, once a row
constexpr double kGap = 22, kPlotHeight = 140, kFoot = 22, kBetweenRows = 26;
constexpr double kBold = 1.12;  // how much wider bold words are

std::size_t columns_for(std::size_t runs) {
  return runs == 4 ? 2 : std::clamp<std::size_t>(runs, 1, 3);
}

// Whole facts, as many as fit on two lines.
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

// Equal for all, so that the plots stand in line.
double head_height(const ProfileReport& report, double width) {
  std::size_t lines = 0;
  for (const ProfileRun& run : report.runs) lines = std::max(lines, fact_lines(run, width).size());
  return 32 + 16 * static_cast<double>(lines);
}

void draw_plot(SvgText& svg, const ProfileReport& report, const ProfileRun& run,
               const SvgScale& scale, double width, bool labels) {
  const Frame frame = {.width = width,
                       .height = kPlotHeight,
                       .seconds = scale.seconds,
                       .most = scale.bytes,
                       .column = 2};
  draw_grid(svg, frame, size_ticks(scale.bytes, 4), labels);
  draw_memory(svg, frame, run);
  if (report.budget && scale.budget_in_sight) draw_budget(svg, frame, run, *report.budget);
  draw_marks(svg, frame, run, false);
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
    draw_plot(svg, report, report.runs[i], scale, width, column == 0);
    svg.close("g");
  }
  return y + head + kPlotHeight + kFoot;
}

}  // namespace evenkeel
