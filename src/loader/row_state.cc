#include "loader/data.h"
#include "loader/row_loader.h"
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

std::string Loader::Impl::describe_data(std::uint64_t samples) const {
  const StagedMixture& mixed = pipeline_.schedule().mixture();
  std::string text = mixed.describe(samples);
  for (std::size_t i = 0; i < mixture_.size(); ++i) {
    if (i > 0) text += " | ";
    text += mixed.describe_share(i, samples);
    bool first = true;
    for (std::size_t j = 0; j < mixture_[i].fields.size(); ++j) {
      const Layout& layout = mixture_[i].fields[j].array_->layout;
      text += first ? "" : " & ";
      text += ragged_[j]
                  ? ragged_[j]->fingerprint()
                  : fingerprint_of(layout, "rows") + " row=" + std::to_string(layout.row_bytes);
      first = false;
    }
  }
  return text;
}

RowLoaderState Loader::Impl::state_at(std::uint64_t step) const {
  const std::uint64_t samples = steps_.samples_before(step);
  return {samples, options_.seed, options_.order, blocks(), describe_data(samples)};
}

void Loader::Impl::load(const RowLoaderState& state) {
  const RowLoaderState mine = state_at(0);
  if (state.order == mine.order && mixed_.changes()) {
    require_same_streams(state.blocks, mine.blocks);
  }
  // For a mixture that changes, only what was drawn so far must be the same.
  require_same("data", "\"" + state.data + "\"", "\"" + describe_data(state.samples) + "\"");
  require_same("seed", state.seed, mine.seed);
  require_same("order", std::string(order_name(state.order)), std::string(order_name(mine.order)));
  if (state.blocks == mine.blocks && !windows_.missing()) {
    return pipeline_.seek_samples(state.samples);
  }
  pipeline_.seek_samples(state.samples, [&] { windows_.change(state.blocks); });
}

}  // namespace evenkeel
