// Text from anywhere, made fit to be shown: names of files and words of commands are bytes, and a
// terminal obeys some of them.
#pragma once

#include <string>
#include <string_view>

namespace evenkeel {

// Whether a terminal would obey this character instead of showing it: controls (U+0000 to U+001F,
// U+007F to U+009F), and what turns the direction of writing or ends a line (U+200E, U+200F, U+2028
// to U+202E, U+2066 to U+2069), by which a name could look like another one.
bool is_obeyed(char32_t c);

// The same text, but for what is obeyed and bytes that are not UTF-8: these become \xNN, above 255
// \uNNNN. What `kept` names stays.
std::string visible(std::string_view text, std::string_view kept = "");

}  // namespace evenkeel
