// Text from anywhere inside HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace evenkeel {

// Safe as content and in quoted attributes. What may not stand in XML (controls, bytes that are not
// UTF-8) becomes U+FFFD.
std::string escape_markup(std::string_view text);

}  // namespace evenkeel
