// The state of a token loader, and where the rows of its batches come from.
#include "array/row_extents.h"
#include "loader/state_text.h"
#include "tokens/loader.h"

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

std::string TokenLoader::Impl::describe_data(std::uint64_t samples) const {
  const StagedMixture& mixed = pipeline_.schedule().mixture();
  std::string text = megatron_ ? megatron_->describe() : mixed.describe(samples);
  for (std::size_t i = 0; i < mixture_.size(); ++i) {
    if (i > 0) text += " | ";
    text += (megatron_ ? "" : mixed.describe_share(i, samples)) + mixture_[i].tokens.fingerprint();
    if (documents_) text += documents_->describe(i);
  }
  return text;
}

LoaderState TokenLoader::Impl::state_at(std::uint64_t step) const {
  const std::uint64_t samples = pipeline_.steps().samples_before(step);
  return {samples,        options_.seed, options_.block_size,
          options_.order, blocks(),      describe_data(samples)};
}

void TokenLoader::Impl::load(const LoaderState& state) {
  const LoaderState mine = state_at(0);
  const bool in_pieces = documents_ && documents_->in_pieces();
  // Whether the turns of a mixture were counted when the loader was created.
  const bool counted = in_pieces || pipeline_.schedule().mixture().changes();
  if (state.order == mine.order && mixture_.size() > 1 && counted) {
    require_same_streams(state.blocks, mine.blocks);
  }
  // For a mixture that changes, only what was drawn so far must be the same.
  require_same("data", "\"" + state.data + "\"", "\"" + describe_data(state.samples) + "\"");
  require_same("seed", state.seed, mine.seed);
  require_same("block_size", state.block_size, mine.block_size);
  require_same("order", std::string(crop_order_name(state.order)),
               std::string(crop_order_name(mine.order)));
  if (state.blocks == mine.blocks && !windows_.missing() && !document_windows_.missing()) {
    return pipeline_.seek_samples(state.samples);
  }
  // The other numbers are part of the description of the data.
  if (in_pieces) return pipeline_.seek_samples(state.samples);
  pipeline_.seek_samples(state.samples, [&] { change_windows(state.blocks); });
}

// The set and the first token of one of Megatron's samples.
void TokenLoader::Impl::locate(Schedule::Sample& sample) const {
  const auto [set, number] = megatron_->sample(sample.row);
  bool first = true;
  megatron_->set(set).for_each_run(number, [&](std::uint64_t start, std::uint64_t) {
    if (first) sample.place.row = start;
    first = false;
  });
  sample.set = set;
}

std::vector<CropOrigin> TokenLoader::Impl::explain(std::uint64_t step) const {
  const Layout& layout = array_->layout;
  std::vector<CropOrigin> origins;
  pipeline_.explain(step, [&](Schedule::Sample sample) {
    if (megatron_) locate(sample);
    const std::uint64_t first =
        documents_ ? documents_->first_token(sample.set, sample.place.row) : sample.place.row;
    std::uint64_t taken;
    const std::uint64_t row = first_token_of(sample.set) + first;
    const auto extent = piece_of(layout, 0, row, 1, nullptr, taken);
    origins.push_back({sample.position, sample.set, sample.place.epoch, first,
                       layout.segments[extent.file].path, extent.offset});
    origins.back().stage = sample.stage;
    if (documents_) origins.back().documents = documents_->explain(sample.set, sample.place.row);
  });
  return origins;
}

}  // namespace evenkeel
