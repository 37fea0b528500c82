// UTF-8 decoding of untrusted text: command lines and file names may contain any bytes.
#pragma once

#include <string>
#include <string_view>

namespace evenkeel {

inline constexpr char32_t kReplacement = 0xFFFD;  // replaces a byte that is not UTF-8

// Removes the next character from the front of `text`, which must not be empty. A byte that does
// not begin a valid character is removed alone and returned as kReplacement.
char32_t take_char(std::string_view& text);

void append_char(std::string& out, char32_t c);

}  // namespace evenkeel
