#include <algorithm>
#include <cstdint>

#include "evenkeel/bytes.h"
#include "profile/svg.h"
#include "profile/svg_marks.h"

namespace evenkeel {
namespace {

constexpr double kLeft = kMargin + 62;  // room for the labels of the axis
constexpr double kWidth = kPictureWidth - kMargin - kLeft;

Frame frame_of(const SvgScale& scale, double height, double most) {
  return {.width = kWidth, .height = height, .seconds = scale.seconds, .most = most};
}

// There is more room for words where less is drawn.
bool more_at_the_end(const ProfileRun& run, double seconds) {
  std::uint64_t begin = 0, end = 0;
  for (const ProfileSample& sample : run.samples) {
    std::uint64_t& most = sample.seconds < seconds / 2 ? begin : end;
    most = std::max(most, sample.memory());
  }
  return end >= begin;
}

// Above the line; where that is out of sight, at the upper edge.
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
  draw_grid(svg, frame, size_ticks(scale.bytes, 5), true);
  draw_memory(svg, frame, run);
  if (report.budget && scale.budget_in_sight) draw_budget(svg, frame, run, *report.budget);
  draw_marks(svg, frame, run, true);
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
  draw_grid(svg, frame, strip.ticks(most, 2), true);
  draw_rate(svg, frame, run, strip.counter);
  svg.close("g");
  return top + frame.height;
}

}  // namespace

double draw_single(SvgText& svg, const ProfileReport& report, const SvgScale& scale, double top) {
  const ProfileRun& run = report.runs[0];
  double y = draw_main(svg, report, scale, top + 10);
  y = draw_strip(svg, run, scale,
                 {"read from disk, a second", &ProfileSample::disk_read, size_ticks}, y);
  y = draw_strip(svg, run, scale,
                 {"major faults, a second", &ProfileSample::major_faults, count_ticks}, y);
  svg.place(kLeft, y);
  draw_times(svg, frame_of(scale, 0, 1), 8);
  svg.close("g");
  return y + 22;
}

}  // namespace evenkeel
