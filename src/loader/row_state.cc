#include <sstream>

#include "base/number.h"
#include "evenkeel/error.h"
#include "evenkeel/loader.h"

namespace evenkeel {
namespace {

constexpr std::string_view kRowMagic = "evenkeel-row-loader-state 1";

Error not_a_row_state(const std::string& text, const std::string& problem) {
  return Error(ErrorKind::kInvalid, "state",
               problem + ": \"" + text.substr(0, 60) + (text.size() > 60 ? "...\"" : "\""))
      .hint("give the text that RowLoaderState::text() returned, unchanged");
}

std::string take_row_field(std::istringstream& in, const std::string& key,
                           const std::string& text) {
  std::string word;
  in >> word;
  if (!word.starts_with(key + "=")) throw not_a_row_state(text, "no " + key + " in its place");
  return word.substr(key.size() + 1);
}

std::uint64_t take_row_number(std::istringstream& in, const std::string& key,
                              const std::string& text) {
  const auto number = parse_number<std::uint64_t>(take_row_field(in, key, text));
  if (!number) throw not_a_row_state(text, key + " is not a number");
  return *number;
}

std::string blocks_text(const BlockOptions& blocks) {
  return " block_rows=" + std::to_string(blocks.block_rows) +
         " window_blocks=" + std::to_string(blocks.window_blocks) +
         " streams=" + std::to_string(blocks.streams);
}

}  // namespace

std::string RowLoaderState::text() const {
  return std::string(kRowMagic) + " samples=" + std::to_string(samples) +
         " seed=" + std::to_string(seed) + " order=" + std::string(order_name(order)) +
         (order == OrderKind::kBlocks ? blocks_text(blocks) : "") + " " + data;
}

RowLoaderState RowLoaderState::parse(const std::string& text) {
  if (!text.starts_with(std::string(kRowMagic) + " ")) {
    throw not_a_row_state(text, "not the state of a loader of rows");
  }
  std::istringstream in(text.substr(kRowMagic.size() + 1));
  RowLoaderState state;
  state.samples = take_row_number(in, "samples", text);
  state.seed = take_row_number(in, "seed", text);
  state.order = parse_order(take_row_field(in, "order", text));
  if (state.order == OrderKind::kBlocks) {
    state.blocks.block_rows = take_row_number(in, "block_rows", text);
    state.blocks.window_blocks = take_row_number(in, "window_blocks", text);
    state.blocks.streams = take_row_number(in, "streams", text);
  }
  std::getline(in >> std::ws, state.data);
  return state;
}

}  // namespace evenkeel
