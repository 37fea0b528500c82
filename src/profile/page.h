// The report page: its files (src/profile/page), which the build embeds in the library, and how
// texts are inserted into it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

std::string_view page_html();
std::string_view page_css();
std::string_view page_js();

struct Insert {
  std::string name, text;
};

// Replaces each {{name}} by its text. Placeholders inside an inserted text are left alone.
std::string fill_page(std::string_view page, const std::vector<Insert>& inserts);

// Returns the same JSON with `<` escaped, which could begin or end markup, and with U+2028 and
// U+2029 escaped, which are line ends in JavaScript.
std::string json_for_script(std::string_view json);

}  // namespace evenkeel
