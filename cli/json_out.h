// JSON on stdout.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace evenkeel::cli {

// Invalid UTF-8, which file names may contain, becomes U+FFFD; control characters are escaped.
void print_json(const nlohmann::ordered_json& json);

}  // namespace evenkeel::cli
