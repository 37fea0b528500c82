#include "cli/json_out.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "profile/json_text.h"

namespace evenkeel::cli {

void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json_without_controls(json.dump(
                         2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)));
}

}  // namespace evenkeel::cli
