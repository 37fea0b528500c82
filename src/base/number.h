// Numbers from text, and as text.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace evenkeel {

// Parses all of `text` as a number. Returns nothing if it contains anything else, such as blanks or
// a leading plus, or if the number is out of range.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

// The shortest text that reads back the same: std::to_string would print 1e-12 as 0.000000.
template <class Number>
std::string number_text(Number number) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof digits, number).ptr};
}

}  // namespace evenkeel
