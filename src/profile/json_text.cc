#include "profile/json_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "base/visible.h"

namespace evenkeel {

std::string json_quoted(std::string_view value) {
  std::string out = "\"";
  while (!value.empty()) {
    const char32_t c = take_char(value);
    if (c == U'"' || c == U'\\') {
      out += '\\';
      append_char(out, c);
    } else if (is_obeyed(c)) {  // JSON may be shown on a terminal
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      append_char(out, c);
    }
  }
  return out + '"';
}

void JsonText::comma() {
  const bool first = text_.empty() || std::string_view("{[:").find(text_.back()) != text_.npos;
  if (!first) text_ += ',';
}

JsonText& JsonText::key(std::string_view name) {
  piece(json_quoted(name));
  text_ += ':';
  return *this;
}

JsonText& JsonText::text(std::string_view value) { return piece(json_quoted(value)); }

JsonText& JsonText::whole(std::uint64_t value) { return piece(std::to_string(value)); }

JsonText& JsonText::real(double value) {
  if (!std::isfinite(value)) return null();
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  return piece(std::string_view(digits, static_cast<std::size_t>(end - digits)));
}

JsonText& JsonText::flag(bool value) { return piece(value ? "true" : "false"); }

JsonText& JsonText::null() { return piece("null"); }

}  // namespace evenkeel
