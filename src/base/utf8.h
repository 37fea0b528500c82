// Characters of text that may come from anywhere: command lines and file names are bytes.
#pragma once

#include <string>
#include <string_view>

namespace evenkeel {

inline constexpr char32_t kReplacement = 0xFFFD;  // stands for what is not UTF-8

// Takes the next character off the front of `text`, which is not empty. A byte that begins no valid
// character is taken alone, as kReplacement.
char32_t take_char(std::string_view& text);

void append_char(std::string& out, char32_t c);

}  // namespace evenkeel
