// The moments that a program marked.
#pragma once

#include "evenkeel/profile.h"
#include "profile/chart.h"
#include "profile/svg_text.h"

namespace evenkeel {

inline constexpr std::size_t kMarkRows = 2;  // of words above the plot

double mark_rows_height(const ProfileRun& run);

// Lines, and above the plot the words for which there is room.
void draw_marks(SvgText& svg, const Frame& frame, const ProfileRun& run, bool words);

}  // namespace evenkeel
