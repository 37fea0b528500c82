#include "evenkeel/bytes.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/checked.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kMost = (std::uint64_t{1} << 63) - 1;

Error not_a_size(std::string_view text, const std::string& problem) {
  return Error(ErrorKind::kInvalid, "size", "\"" + std::string(text) + "\" " + problem)
      .hint(
          "write a number and a unit, such as 64MiB or 1.5GB: KiB MiB GiB TiB (or K M G T) are "
          "powers of two, KB MB GB TB powers of ten, no unit means bytes");
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.front()))) s.remove_prefix(1);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s.back()))) s.remove_suffix(1);
  return s;
}

std::optional<std::uint64_t> unit_bytes(std::string_view unit) {
  std::string lower;
  for (char c : unit) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower.empty() || lower == "b") return 1;
  const std::size_t power = std::string_view("kmgt").find(lower[0]);
  if (power == std::string_view::npos) return std::nullopt;
  const std::string_view rest = std::string_view(lower).substr(1);
  if (rest.empty() || rest == "ib") return std::uint64_t{1} << (10 * (power + 1));
  if (rest != "b") return std::nullopt;
  std::uint64_t bytes = 1;
  for (std::size_t i = 0; i <= power; ++i) bytes *= 1000;
  return bytes;
}

}  // namespace

std::uint64_t parse_size(std::string_view text) {
  const std::string_view s = trim(text);
  if (s.empty()) throw not_a_size(text, "is empty");
  if (s[0] == '-') throw not_a_size(text, "is negative");
  const std::size_t digits_end = s.find_first_not_of("0123456789.");
  const std::string_view number = s.substr(0, digits_end);
  const std::string_view unit =
      digits_end == std::string_view::npos ? std::string_view() : trim(s.substr(digits_end));
  if (number.empty()) throw not_a_size(text, "does not begin with a number");
  const auto scale = unit_bytes(unit);
  if (!scale) throw not_a_size(text, "has the unknown unit \"" + std::string(unit) + "\"");

  // Whole numbers are exact; fractions ("1.5GiB") are rounded to the nearest byte.
  std::uint64_t whole = 0;
  const char* end = number.data() + number.size();
  auto [stop, failure] = std::from_chars(number.data(), end, whole);
  if (failure == std::errc::result_out_of_range)
    throw not_a_size(text, "is more than 2^63-1 bytes");
  if (stop == end && failure == std::errc()) {
    const auto bytes = checked_mul(whole, *scale);
    if (!bytes || *bytes > kMost) throw not_a_size(text, "is more than 2^63-1 bytes");
    return *bytes;
  }
  double value = 0;
  auto [float_stop, float_failure] = std::from_chars(number.data(), end, value);
  if (float_stop != end || float_failure != std::errc()) throw not_a_size(text, "is not a number");
  const double bytes = std::round(value * static_cast<double>(*scale));
  if (!(bytes < 0x1p63)) throw not_a_size(text, "is more than 2^63-1 bytes");
  return static_cast<std::uint64_t>(bytes);
}

std::string format_size(std::uint64_t bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  const int decimals = unit == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  std::string out = text;
  if (out.find('.') != std::string::npos) {
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  return out + " " + kUnits[unit];
}

std::string with_commas(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

}  // namespace evenkeel
