#include <charconv>
#include <sstream>

#include "evenkeel/error.h"
#include "evenkeel/tokens.h"

namespace evenkeel {
namespace {

constexpr std::string_view kMagic = "evenkeel-loader-state 1";

Error not_a_state(const std::string& text, const std::string& problem) {
  return Error(ErrorKind::kInvalid, "state",
               problem + ": \"" + text.substr(0, 60) + (text.size() > 60 ? "...\"" : "\""))
      .hint("give the text that LoaderState::text() returned, unchanged");
}

std::string take_field(std::istringstream& in, const std::string& key, const std::string& text) {
  std::string word;
  in >> word;
  if (!word.starts_with(key + "=")) throw not_a_state(text, "no " + key + " in its place");
  return word.substr(key.size() + 1);
}

std::uint64_t take_number(std::istringstream& in, const std::string& key, const std::string& text) {
  const std::string digits = take_field(in, key, text);
  std::uint64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, number);
  if (failure != std::errc() || stop != end || digits.empty()) {
    throw not_a_state(text, key + " is not a number");
  }
  return number;
}

}  // namespace

std::string LoaderState::text() const {
  return std::string(kMagic) + " samples=" + std::to_string(samples) +
         " seed=" + std::to_string(seed) + " block_size=" + std::to_string(block_size) +
         " order=" + std::string(crop_order_name(order)) + " " + data;
}

LoaderState LoaderState::parse(const std::string& text) {
  if (!text.starts_with(std::string(kMagic) + " ")) throw not_a_state(text, "not a loader's state");
  std::istringstream in(text.substr(kMagic.size() + 1));
  LoaderState state;
  state.samples = take_number(in, "samples", text);
  state.seed = take_number(in, "seed", text);
  state.block_size = take_number(in, "block_size", text);
  state.order = parse_crop_order(take_field(in, "order", text));
  std::getline(in >> std::ws, state.data);
  return state;
}

}  // namespace evenkeel
