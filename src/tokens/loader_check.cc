// Which options a token loader refuses, and those that it chooses.
#include <algorithm>

#include "base/checked.h"
#include "tokens/crop_order.h"
#include "tokens/loader.h"

namespace evenkeel {
namespace {

Error wrong_loader(const std::string& what) { return Error(ErrorKind::kInvalid, "loader", what); }

void check_megatron(const LoaderOptions& options) {
  if (options.epochs > 0) {
    throw wrong_loader("order \"megatron\" is made for a number of samples, not of epochs")
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
    throw wrong_loader("a loss mask belongs to batches with documents, which have a field for it")
        .hint("choose documents=\"mask\", \"start\", \"packed\" or \"whole\"");
  }
  if (options.order == CropOrder::kBlocks) {
    throw wrong_loader("order \"blocks\" takes no loss mask").hint("use order \"shuffled\"");
  }
}

}  // namespace

LoaderOptions TokenLoader::Impl::check(LoaderOptions options,
                                       const std::vector<WeightedTokens>& sets) {
  if (sets.empty()) throw wrong_loader("no tokens were given");
  if (options.block_size == 0) throw wrong_loader("a block of 0 tokens");
  check_steps(steps_of(options));
  if (options.order == CropOrder::kMegatron) check_megatron(options);
  check_epochs(steps_of(options), options.order != CropOrder::kRandom, sets.size());
  const DocumentMode documents = options.documents.mode;
  check_loss_masks(options, sets);
  const bool crops = (documents == DocumentMode::kNone || documents == DocumentMode::kMask) &&
                     options.order != CropOrder::kMegatron;
  if (options.order == CropOrder::kBlocks && !crops) {
    throw wrong_loader("order \"blocks\" mixes crops, and documents=\"" +
                       std::string(document_mode_name(documents)) + "\" has other rows")
        .hint("use documents=\"mask\", or another order");
  }
  for (const WeightedTokens& set : sets) {
    if (!crops) break;
    require_crops(set.tokens.size(), options.block_size, options.order);
  }
  const auto tokens = checked_mul(options.batch_size, options.block_size + 1);
  if (!tokens || !checked_mul(*tokens, 32)) {
    throw wrong_loader("batch_size x block_size is too large: " + with_commas(options.batch_size) +
                       " x " + with_commas(options.block_size));
  }
  if (options.order == CropOrder::kBlocks) {
    const Tokens& first = sets.front().tokens;
    LoaderBlocks blocks{
        options.blocks, options.block_size * first.dtype().size, first.budget().limit(), {}};
    for (const WeightedTokens& set : sets) {
      blocks.samples.push_back(
          crops_of_epoch(set.tokens.size(), options.block_size, options.order));
    }
    options.blocks = choose_blocks(blocks, steps_of(options));
  }
  return options;
}

}  // namespace evenkeel
