// Checks the options of a token loader, and chooses those that were not given.
#include <algorithm>

#include "base/checked.h"
#include "tokens/crop_order.h"
#include "tokens/document_options.h"
#include "tokens/loader.h"

namespace evenkeel {
namespace {

Error wrong_loader(const std::string& what) { return Error(ErrorKind::kInvalid, "loader", what); }

void check_megatron(const LoaderOptions& options) {
  if (options.epochs > 0) {
    throw wrong_loader("order \"megatron\" has a number of samples, not of epochs")
        .hint("give samples, or steps");
  }
  if (!options.mixture.stages.empty() || !options.mixture.max_epochs.empty()) {
    throw wrong_loader("order \"megatron\" has neither stages nor max_epochs")
        .hint("use order \"shuffled\" for a mixture that changes");
  }
  if (options.documents.mode != DocumentMode::kNone) {
    throw wrong_loader("order \"megatron\" takes no documents=\"" +
                       std::string(document_mode_name(options.documents.mode)) + "\"")
        .hint("use order \"shuffled\" with documents");
  }
}

void check_loss_masks(const LoaderOptions& options, const std::vector<WeightedTokens>& sets) {
  const bool any = std::ranges::any_of(
      sets, [](const WeightedTokens& set) { return set.loss_mask.has_value(); });
  if (!any) return;
  if (options.documents.mode == DocumentMode::kNone) {
    throw wrong_loader("a loss mask needs batches with documents, which have a field for it")
        .hint("choose documents=\"mask\", \"start\", \"packed\" or \"whole\"");
  }
}

// Blocks for rows that are made of documents. The size of their windows is DocumentOptions::window.
BlockOptions blocks_of_documents(const LoaderOptions& options, std::size_t sets) {
  const BlockOptions chosen =
      choose_blocks(BlockRequest{.world = options.world,
                                 .streams = options.blocks.streams,
                                 .sets = sets,
                                 .step_rows = options.batch_size * options.world});
  const bool whole = options.documents.mode == DocumentMode::kWhole;
  const BlockOptions& given = options.blocks;
  if (given.window_blocks > 0 || (given.block_rows > 0 && !whole)) {
    throw wrong_loader(whole ? "documents=\"whole\" has a window of documents, not of blocks"
                             : "documents=\"packed\" has windows of rows, not of blocks")
        .hint(whole ? "set DocumentOptions::window (Python: window)"
                    : "set DocumentOptions::window and mixed_windows (Python: window)");
  }
  if (sets > 1 && chosen.streams % options.world != 0) {
    throw wrong_loader("a world of " + with_commas(options.world) + " ranks does not divide the " +
                       with_commas(chosen.streams) + " streams of order \"blocks\"")
        .hint("streams must be a multiple of every world");
  }
  constexpr std::uint64_t kBlockDocuments = 64;
  const DocumentOptions documents = checked_documents(options).documents;
  if (!whole) return {documents.window, documents.mixed_windows, chosen.streams};
  const std::uint64_t block = given.block_rows > 0 ? given.block_rows : kBlockDocuments;
  return {block, (documents.window - 1) / block + 1, chosen.streams};
}

}  // namespace

LoaderOptions TokenLoader::Impl::check(LoaderOptions options,
                                       const std::vector<WeightedTokens>& sets) {
  if (sets.empty()) throw wrong_loader("no tokens were given");
  if (options.block_size == 0) throw wrong_loader("block_size must be at least 1; got 0");
  check_steps(steps_of(options));
  if (options.order == CropOrder::kMegatron) check_megatron(options);
  check_epochs(steps_of(options), options.order != CropOrder::kRandom, sets.size());
  const DocumentMode documents = options.documents.mode;
  check_loss_masks(options, sets);
  const bool in_pieces = documents == DocumentMode::kPacked || documents == DocumentMode::kWhole;
  const bool crops = documents == DocumentMode::kNone || documents == DocumentMode::kMask ||
                     options.order == CropOrder::kBlocks;
  for (const WeightedTokens& set : sets) {
    if (!crops || in_pieces || options.order == CropOrder::kMegatron) break;
    require_crops(set.tokens.size(), options.block_size, options.order);
  }
  const auto tokens = checked_mul(options.batch_size, options.block_size + 1);
  if (!tokens || !checked_mul(*tokens, 32)) {
    throw wrong_loader("batch_size x block_size is too large: " + with_commas(options.batch_size) +
                       " x " + with_commas(options.block_size));
  }
  if (options.order != CropOrder::kBlocks) return options;
  const Tokens& first = sets.front().tokens;
  LoaderBlocks blocks{
      options.blocks, options.block_size * first.dtype().size, first.budget().limit(), {}};
  if (in_pieces) {
    options.blocks = blocks_of_documents(options, sets.size());
    return options;
  }
  for (const WeightedTokens& set : sets) {
    blocks.samples.push_back(crops_of_epoch(set.tokens.size(), options.block_size, options.order));
  }
  options.blocks = choose_blocks(blocks, steps_of(options));
  return options;
}

}  // namespace evenkeel
