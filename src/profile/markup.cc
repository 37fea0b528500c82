#include "profile/markup.h"

#include "base/utf8.h"

namespace evenkeel {
namespace {

bool may_stand_in_xml(char32_t c) {
  if (c < 0x20) return c == '\t' || c == '\n' || c == '\r';
  return c != 0xFFFE && c != 0xFFFF && (c < 0x7F || c > 0x9F);
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const char32_t c = take_char(text);
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        append_char(out, may_stand_in_xml(c) ? c : kReplacement);
    }
  }
  return out;
}

}  // namespace evenkeel
