#include "base/visible.h"

#include <cstdio>

#include "base/utf8.h"

namespace evenkeel {
namespace {

void append_escape(std::string& out, char32_t c) {
  char escape[12];
  std::snprintf(escape, sizeof escape, c < 0x100 ? "\\x%02x" : "\\u%04x", static_cast<unsigned>(c));
  out += escape;
}

bool allowed_in_xml(char32_t c) {
  if (c < 0x20) return c == '\t' || c == '\n' || c == '\r';
  return c != 0xFFFE && c != 0xFFFF && (c < 0x7F || c > 0x9F);
}

}  // namespace

bool is_obeyed(char32_t c) {
  const bool control = c < 0x20 || (c >= 0x7F && c <= 0x9F);
  return control || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
         (c >= 0x2066 && c <= 0x2069);
}

std::string without_query(std::string path) {
  if (!path.starts_with("http://") && !path.starts_with("https://")) return path;
  const std::size_t query = path.find('?');
  if (query != path.npos) path.replace(query + 1, path.npos, "...");
  return path;
}

std::string visible(std::string_view text, std::string_view kept) {
  std::string shown;
  if (text.starts_with("http") && text.find('?') != text.npos) {
    shown = without_query(std::string(text));
    text = shown;
  }
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::string_view before = text;
    const char32_t c = take_char(text);
    const std::string_view bytes = before.substr(0, before.size() - text.size());
    // A real U+FFFD has three bytes; one that replaces an invalid byte has one.
    if (c == kReplacement && bytes.size() == 1) {
      append_escape(out, static_cast<unsigned char>(bytes[0]));
    } else if (is_obeyed(c) && (c > 0x7F || kept.find(static_cast<char>(c)) == kept.npos)) {
      append_escape(out, c);
    } else {
      out += bytes;
    }
  }
  return out;
}

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
        append_char(out, allowed_in_xml(c) ? c : kReplacement);
    }
  }
  return out;
}

}  // namespace evenkeel
