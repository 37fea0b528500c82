// Makes untrusted text safe to display: file names and command lines may contain any bytes, and
// some of them control a terminal.
#pragma once

#include <string>
#include <string_view>

namespace evenkeel {

// Whether a terminal would act on this character instead of showing it: control characters (U+0000
// to U+001F, U+007F to U+009F), and characters that change the writing direction or end a line
// (U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069), which can make one name look like another.
bool is_obeyed(char32_t c);

// The same text, with is_obeyed() characters and bytes that are not UTF-8 replaced by \xNN, or
// \uNNNN above 255. Characters in `kept` are not replaced.
std::string visible(std::string_view text, std::string_view kept = "");

// Replaces the query of a URL by "...", because it may hold signatures and tokens. Returns other
// paths unchanged. Errors and visible() show URLs this way.
std::string without_query(std::string path);

// For XML and HTML: safe as content and in quoted attributes. Characters that XML forbids (control
// characters, bytes that are not UTF-8) become U+FFFD.
std::string escape_markup(std::string_view text);

}  // namespace evenkeel
