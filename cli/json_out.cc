#include "cli/json_out.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "base/visible.h"

namespace evenkeel::cli {

namespace {

// JSON lets some characters stand as they are that terminals obey.
std::string without_controls(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (std::string_view rest = json; !rest.empty();) {
    const std::string_view before = rest;
    const char32_t c = take_char(rest);
    if (is_obeyed(c) && c != '\n') {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += before.substr(0, before.size() - rest.size());
    }
  }
  return out;
}

}  // namespace

void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", without_controls(json.dump(2, ' ', false,
                                                nlohmann::ordered_json::error_handler_t::replace)));
}

}  // namespace evenkeel::cli
