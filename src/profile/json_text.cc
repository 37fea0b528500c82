#include "profile/json_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "base/visible.h"

namespace evenkeel {

namespace {

void append_json_escape(std::string& out, char32_t c) {
  char escape[8];
  std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
  out += escape;
}

}  // namespace

std::string json_without_controls(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  while (!json.empty()) {
    const char32_t c = take_char(json);
    is_obeyed(c) && c != '\n' ? append_json_escape(out, c) : append_char(out, c);
  }
  return out;
}

std::string json_quoted(std::string_view value) {
  std::string out = "\"";
  while (!value.empty()) {
    const char32_t c = take_char(value);
    if (c == U'"' || c == U'\\') {
      out += '\\';
      append_char(out, c);
    } else if (is_obeyed(c)) {  // JSON may be shown on a terminal
      append_json_escape(out, c);
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
