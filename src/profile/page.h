// The report page: its own files (src/profile/page), as the build put them into the library, and
// how texts get into it.
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

// One pass over the page: what looks like a place inside an inserted text is left alone.
std::string fill_page(std::string_view page, const std::vector<Insert>& inserts);

// The same JSON without a `<` that could end or begin markup, and without the line ends that only
// JavaScript knows.
std::string json_for_script(std::string_view json);

}  // namespace evenkeel
