// JSON on stdout.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace evenkeel::cli {

// Bytes that are no UTF-8, as names of files may have, become U+FFFD; controls are escaped.
void print_json(const nlohmann::ordered_json& json);

}  // namespace evenkeel::cli
