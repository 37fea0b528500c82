#include "base/utf8.h"

namespace evenkeel {
namespace {

bool is_valid(char32_t c, std::size_t length) {
  static constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // below: overlong
  const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
  return c >= kLeast[length] && c <= 0x10FFFF && !surrogate;
}

// 0 if no character begins with this byte.
std::size_t length_from(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >> 5 == 0b110) return 2;
  if (lead >> 4 == 0b1110) return 3;
  return lead >> 3 == 0b11110 ? 4 : 0;
}

}  // namespace

char32_t take_char(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = length_from(byte(0));
  char32_t c = length == 1 ? byte(0) : byte(0) & (0x7F >> length);
  bool valid = length != 0 && length <= text.size();
  for (std::size_t i = 1; valid && i < length; ++i) {
    valid = byte(i) >> 6 == 0b10;
    c = c << 6 | (byte(i) & 0x3F);
  }
  valid = valid && is_valid(c, length);
  text.remove_prefix(valid ? length : 1);
  return valid ? c : kReplacement;
}

void append_char(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  static constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[more] | (c >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F));
}

}  // namespace evenkeel
