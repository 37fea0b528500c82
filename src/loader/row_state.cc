#include "evenkeel/loader.h"
#include "loader/state_text.h"

namespace evenkeel {
namespace {

constexpr std::string_view kRowMagic = "evenkeel-row-loader-state 1";

}  // namespace

std::string RowLoaderState::text() const {
  return std::string(kRowMagic) + " samples=" + std::to_string(samples) +
         " seed=" + std::to_string(seed) + " order=" + std::string(order_name(order)) +
         (order == OrderKind::kBlocks ? blocks_text(blocks) : "") + " " + data;
}

RowLoaderState RowLoaderState::parse(const std::string& text) {
  StateText in(text, kRowMagic, "the state of a loader of rows", "RowLoaderState::text()");
  RowLoaderState state;
  state.samples = in.number("samples");
  state.seed = in.number("seed");
  state.order = parse_order(in.field("order"));
  if (state.order == OrderKind::kBlocks) state.blocks = in.blocks();
  state.data = in.rest();
  return state;
}

}  // namespace evenkeel
