// Arbitrary text for terminals, pages, pictures and JSON.
#include "base/utf8.h"
#include "base/visible.h"
#include "cli/terminal.h"
#include "fuzz/target.h"
#include "profile/json_text.h"
#include "profile/page.h"
#include "profile/svg_text.h"

namespace evenkeel::fuzz {
namespace {

bool is_control(char32_t c) { return c < 0x20 || (c >= 0x7F && c <= 0x9F); }
bool is_bad(char32_t c) { return is_control(c) || c == 0x2028 || c == 0x202E || c == 0x2066; }

// The text is UTF-8, and `bad` holds for none of its characters.
template <class Bad>
void check_text(std::string_view text, const Bad& bad) {
  while (!text.empty()) {
    const std::size_t before = text.size();
    const char32_t c = take_char(text);
    MUST(c != kReplacement || before - text.size() == 3);
    MUST(!bad(c));
  }
}

void check_markup(std::string_view text) {
  const std::string markup = escape_markup(text);
  check_text(markup, [](char32_t c) {
    const bool blank = c == '\n' || c == '\t' || c == '\r';
    return (is_control(c) && !blank) || c == '<' || c == '>' || c == '"' || c == '\'';
  });
}

// Parses a JSON string with a minimal parser.
void check_json(std::string_view text) {
  const std::string quoted = json_quoted(text);
  check_text(quoted, is_bad);
  const std::string_view inner = std::string_view(quoted).substr(1, quoted.size() - 2);
  for (std::size_t i = 0; i < inner.size(); ++i) {
    MUST(inner[i] != '"');
    if (inner[i] != '\\') continue;
    ++i;
    MUST(i < inner.size() && std::string_view("\\\"u").find(inner[i]) != std::string_view::npos);
  }
  const std::string script = json_for_script(quoted);
  MUST(script.find('<') == script.npos && script.find("\u2028") == script.npos);
}

void check_visible(std::string_view text) {
  const std::string shown = visible(text);
  check_text(shown, is_bad);
  MUST(visible(shown) == shown);
  check_text(visible(text, "\n\t"),
             [](char32_t c) { return is_control(c) && c != '\n' && c != '\t'; });
  check_text(cli::shell_word(std::string(text)), is_bad);
}

FUZZ_TARGET(text) {
  const double width = static_cast<double>(input.upto(500));
  const std::size_t lines = 1 + input.upto(4);
  const std::string_view text = input.rest();
  check_markup(text);
  check_json(text);
  check_visible(text);
  MUST(wrap(text, 10, width, lines).size() <= lines);
  fit(text, 10, width);
  const std::string whole(text);
  MUST(whole.starts_with(cli::first_columns(whole, lines)));
  MUST(fill_page("a{{x}}b{{y", {{"x", whole}}) == "a" + whole + "b{{y");
}

}  // namespace
}  // namespace evenkeel::fuzz
