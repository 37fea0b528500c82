// The parts of the picture: a head, then one large chart or several small ones.
#pragma once

#include "evenkeel/profile.h"
#include "profile/chart.h"
#include "profile/svg_text.h"

namespace evenkeel {

inline constexpr double kPictureWidth = 800, kMargin = 28;

// The scale of all runs. A budget far above all memory would flatten the charts; it is then named
// but not drawn.
struct SvgScale {
  double seconds = 1, bytes = 1;
  bool budget_in_sight = false;
};
SvgScale scale_of(const ProfileReport& report);

// Each draws from `top` downwards and returns where it ended.
double draw_single(SvgText& svg, const ProfileReport& report, const SvgScale& scale, double top);
double draw_multiples(SvgText& svg, const ProfileReport& report, const SvgScale& scale, double top);

// "295,210 rows/s"
std::string fact_words(const std::pair<std::string, std::string>& fact);

inline constexpr std::size_t kMarkRows = 2;  // rows of labels above the plot

double mark_rows_height(const ProfileRun& run);

// Draws a line for each mark, and, if labels are shown, those that fit above the plot.
void draw_marks(SvgText& svg, const Frame& frame, const ProfileRun& run, PlotLabels labels);

}  // namespace evenkeel
