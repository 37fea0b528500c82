// Writes SVG, shape by shape. Each `look` is a class of the style sheet. Text is escaped here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

// An upper bound for the width of a text in pixels, in common sans-serif fonts of `size` pixels.
double text_width(std::string_view words, double size);

// Cuts the text to `width` pixels, with an ellipsis if it is cut.
std::string fit(std::string_view words, double size, double width);

// Breaks the text into lines at blanks. Text that does not fit into `most_lines` is cut with an
// ellipsis.
std::vector<std::string> wrap(std::string_view words, double size, double width,
                              std::size_t most_lines);

class SvgText {
 public:
  void open(std::string_view tag_and_attributes);  // "g transform=..."
  void close(std::string_view tag);
  void place(double x, double y);  // opens a group with its own origin
  void rect(std::string_view look, double x, double y, double width, double height,
            double radius = 0);
  void line(std::string_view look, double x1, double y1, double x2, double y2);
  void path(std::string_view look, std::string_view d);
  void words(std::string_view look, double x, double y, std::string_view words);
  void element(std::string_view tag, std::string_view words);  // <title>, <desc>
  void raw(std::string_view markup) { text_ += markup; }

  std::string take() { return std::move(text_); }

 private:
  void attribute(std::string_view name, double value);

  std::string text_;
};

}  // namespace evenkeel
