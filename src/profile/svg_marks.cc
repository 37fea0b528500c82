#include "profile/svg_marks.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace evenkeel {
namespace {

constexpr double kSize = 11, kRowHeight = 14, kLongest = 160;
constexpr double kLeastGap = 5;  // lines closer together are a grey area

// Rows of words above a plot: a word goes where the row is still free.
class Rows {
 public:
  // The row that is free from `left` on, or empty.
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

void draw_marks(SvgText& svg, const Frame& frame, const ProfileRun& run, bool words) {
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
    const auto row = words ? rows.take(left, left + width) : std::nullopt;
    const double top = row ? -kRowHeight * static_cast<double>(kMarkRows - *row) : 0;
    svg.line("mark", x, top, x, frame.height);
    if (row)
      svg.words(leftwards ? "tick right" : "tick", leftwards ? x - 3 : x + 3, top + 10, shown);
  }
}

}  // namespace evenkeel
