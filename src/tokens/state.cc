#include "evenkeel/tokens.h"
#include "loader/state_text.h"

namespace evenkeel {
namespace {

constexpr std::string_view kMagic = "evenkeel-loader-state 1";

}  // namespace

std::string LoaderState::text() const {
  return std::string(kMagic) + " samples=" + std::to_string(samples) +
         " seed=" + std::to_string(seed) + " block_size=" + std::to_string(block_size) +
         " order=" + std::string(crop_order_name(order)) +
         (order == CropOrder::kBlocks ? blocks_text(blocks) : "") + " " + data;
}

LoaderState LoaderState::parse(const std::string& text) {
  StateText in(text, kMagic, "a loader's state", "LoaderState::text()");
  LoaderState state;
  state.samples = in.number("samples");
  state.seed = in.number("seed");
  state.block_size = in.number("block_size");
  state.order = parse_crop_order(in.field("order"));
  if (state.order == CropOrder::kBlocks) state.blocks = in.blocks();
  state.data = in.rest();
  return state;
}

}  // namespace evenkeel
