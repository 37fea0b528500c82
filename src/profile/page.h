// The report page's own files (src/profile/page), as the build put them into the library.
#pragma once

#include <string_view>

namespace evenkeel {

std::string_view page_html();
std::string_view page_css();
std::string_view page_js();

}  // namespace evenkeel
