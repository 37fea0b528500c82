#include "profile/svg_text.h"

#include "base/utf8.h"
#include "base/visible.h"
#include "profile/chart.h"

namespace evenkeel {
namespace {

constexpr std::string_view kEllipsis = "…";

double em_of(char32_t c) {
  if (c >= 0x2E80) return 1;  // CJK and emoji are square
  if (c < 0x80 &&
      std::string_view("ijl.,:;|!'()[] ft").find(static_cast<char>(c)) != std::string_view::npos) {
    return 0.32;
  }
  if (c == 'm' || c == 'w' || c == 'M' || c == 'W' || c == '@') return 0.88;
  return c >= 'A' && c <= 'Z' ? 0.68 : 0.58;
}

}  // namespace

double text_width(std::string_view words, double size) {
  double em = 0;
  while (!words.empty()) em += em_of(take_char(words));
  return em * size;
}

std::string fit(std::string_view words, double size, double width) {
  if (text_width(words, size) <= width) return std::string(words);
  const double room = width - text_width(kEllipsis, size);
  std::string out;
  for (double used = 0; !words.empty();) {
    const char32_t c = take_char(words);
    used += em_of(c) * size;
    if (used > room) break;
    append_char(out, c);
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out.append(kEllipsis);
}

std::vector<std::string> wrap(std::string_view words, double size, double width,
                              std::size_t most_lines) {
  std::vector<std::string> lines;
  while (!words.empty() && lines.size() + 1 < most_lines && text_width(words, size) > width) {
    std::size_t end = words.find(' ');
    for (std::size_t next = end; next != words.npos; next = words.find(' ', next + 1)) {
      if (text_width(words.substr(0, next), size) > width) break;
      end = next;
    }
    lines.push_back(fit(words.substr(0, end), size, width));
    words.remove_prefix(end == words.npos ? words.size() : end + 1);
  }
  if (!words.empty()) lines.push_back(fit(words, size, width));
  return lines;
}

void SvgText::attribute(std::string_view name, double value) {
  text_.append(" ").append(name).append("=\"").append(tenths(value)).append("\"");
}

void SvgText::open(std::string_view tag_and_attributes) {
  text_.append("<").append(tag_and_attributes).append(">\n");
}

void SvgText::close(std::string_view tag) { text_.append("</").append(tag).append(">\n"); }

void SvgText::place(double x, double y) {
  open("g transform=\"translate(" + tenths(x) + " " + tenths(y) + ")\"");
}

void SvgText::rect(std::string_view look, double x, double y, double width, double height,
                   double radius) {
  text_.append("<rect class=\"").append(look).append("\"");
  attribute("x", x);
  attribute("y", y);
  attribute("width", width);
  attribute("height", height);
  if (radius > 0) attribute("rx", radius);
  text_ += "/>\n";
}

void SvgText::line(std::string_view look, double x1, double y1, double x2, double y2) {
  path(look, "M" + tenths(x1) + " " + tenths(y1) + "L" + tenths(x2) + " " + tenths(y2));
}

void SvgText::path(std::string_view look, std::string_view d) {
  if (d.empty()) return;
  text_.append("<path class=\"").append(look).append("\" d=\"").append(d).append("\"/>\n");
}

void SvgText::words(std::string_view look, double x, double y, std::string_view words) {
  text_.append("<text class=\"").append(look).append("\"");
  attribute("x", x);
  attribute("y", y);
  text_.append(">").append(escape_markup(words)).append("</text>\n");
}

void SvgText::element(std::string_view tag, std::string_view words) {
  text_.append("<").append(tag).append(">").append(escape_markup(words));
  close(tag);
}

}  // namespace evenkeel
