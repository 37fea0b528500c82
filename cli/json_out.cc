#include "cli/json_out.h"

#include <nlohmann/json.hpp>

#include "cli/terminal.h"
#include "profile/json_text.h"

namespace evenkeel::cli {

void print_json(const nlohmann::ordered_json& json) {
  print_out(json_without_controls(
                json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace)) +
            "\n");
}

}  // namespace evenkeel::cli
