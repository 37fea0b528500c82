// Numbers that are written as text.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace evenkeel {

// The number that all of `text` is. Empty when anything else is in it, also blanks or a leading
// plus, or when it is out of range.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

}  // namespace evenkeel
