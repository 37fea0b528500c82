// The picture, in its parts: a head for all, then one large chart or many small ones.
#pragma once

#include "evenkeel/profile.h"
#include "profile/chart.h"
#include "profile/svg_text.h"

namespace evenkeel {

inline constexpr double kPictureWidth = 800, kMargin = 28;

// Equal for all runs. A budget far above everything would press the rest flat; it is then named
// and not drawn.
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

inline constexpr std::size_t kMarkRows = 2;  // of words above the plot

double mark_rows_height(const ProfileRun& run);

// Lines, and above the plot the words for which there is room.
void draw_marks(SvgText& svg, const Frame& frame, const ProfileRun& run, bool words);

}  // namespace evenkeel
