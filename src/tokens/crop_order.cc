#include "tokens/crop_order.h"

#include <array>
#include <utility>

#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::array<std::pair<std::string_view, CropOrder>, 4> kNames = {{
    {"random", CropOrder::kRandom},
    {"shuffled", CropOrder::kShuffled},
    {"covering", CropOrder::kCovering},
    {"megatron", CropOrder::kMegatron},
}};

// Keeps the phases of `covering` apart from its permutations of blocks.
constexpr std::uint64_t kPhaseSeed = 0x70686173655f6f66;  // "phase_of"

std::uint64_t count_blocks(std::uint64_t tokens, std::uint64_t block_size, CropOrder order) {
  if (tokens <= block_size) return 0;
  if (order == CropOrder::kShuffled) return (tokens - 1) / block_size;
  // As many as fit behind the largest phase, so that every epoch has the same number.
  return (tokens - block_size) / block_size;
}

}  // namespace

CropOrder parse_crop_order(std::string_view name) {
  for (const auto& [text, order] : kNames) {
    if (text == name) return order;
  }
  throw Error(ErrorKind::kInvalid, "order", "\"" + std::string(name) + "\" is not an order")
      .hint("the orders are random, shuffled, covering, megatron");
}

std::string_view crop_order_name(CropOrder order) {
  return kNames[static_cast<std::size_t>(order)].first;
}

CropSequence::CropSequence(std::uint64_t tokens, std::uint64_t block_size, CropOrder order,
                           std::uint64_t seed)
    : tokens_(tokens), block_size_(block_size), seed_(seed), order_(order) {
  if (block_size == 0) throw Error(ErrorKind::kInvalid, "loader", "a block of 0 tokens");
  if (order != CropOrder::kRandom) blocks_ = count_blocks(tokens, block_size, order);
  if (tokens > block_size && (order == CropOrder::kRandom || blocks_ > 0)) return;
  const std::uint64_t needed = order == CropOrder::kCovering ? 2 * block_size : block_size + 1;
  throw Error(ErrorKind::kInvalid, "loader",
              "blocks of " + with_commas(block_size) + " tokens in order \"" +
                  std::string(crop_order_name(order)) + "\" need at least " + with_commas(needed) +
                  " tokens; there are " + with_commas(tokens))
      .hint("take a smaller block_size");
}

std::uint64_t CropSequence::phase(std::uint64_t epoch) const {
  if (order_ != CropOrder::kCovering) return 0;
  // A permutation of all phases, so that none comes twice in block_size epochs.
  return Permutation(block_size_, seed_ ^ kPhaseSeed, epoch / block_size_)(epoch % block_size_);
}

SampleOrder::Place CropSequence::at(std::uint64_t position) {
  if (order_ == CropOrder::kRandom) {
    return {uniform_draw(seed_, 0, position, tokens_ - block_size_), 0};
  }
  const std::uint64_t epoch = position / blocks_;
  if (!permutation_ || epoch != epoch_) {
    permutation_.emplace(blocks_, seed_, epoch);
    phase_ = phase(epoch);
    epoch_ = epoch;
  }
  return {phase_ + (*permutation_)(position % blocks_) * block_size_, epoch};
}

}  // namespace evenkeel
