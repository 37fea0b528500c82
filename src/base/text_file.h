// Reads and parses small text files of the kernel: /proc, /sys, cgroups.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace evenkeel {

// Returns the whole file, or nothing with errno set.
std::optional<std::string> read_text_file(const std::string& path);

// Removes the next line from the front of `text`; false if nothing is left.
inline bool take_line(std::string_view& text, std::string_view& line) {
  if (text.empty()) return false;
  const std::size_t end = text.find('\n');
  line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return true;
}

// The number that `text` begins with, after blanks; empty if there is none or it is too large.
inline std::optional<std::uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

// The number after `key` at the start of a line: "MemAvailable:   123 kB", "inactive_file 4096".
std::optional<std::uint64_t> number_after(std::string_view text, std::string_view key);

}  // namespace evenkeel
