#include "tokens/crop_order.h"

#include <array>
#include <utility>

#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::array<std::pair<std::string_view, CropOrder>, 5> kNames = {{
    {"random", CropOrder::kRandom},
    {"shuffled", CropOrder::kShuffled},
    {"covering", CropOrder::kCovering},
    {"blocks", CropOrder::kBlocks},
    {"megatron", CropOrder::kMegatron},
}};

// Makes the phases independent of the permutations of blocks.
constexpr std::uint64_t kPhaseSeed = 0x70686173655f6f66;  // "phase_of"

bool has_phases(CropOrder order) {
  return order == CropOrder::kCovering || order == CropOrder::kBlocks;
}

}  // namespace

CropOrder parse_crop_order(std::string_view name) {
  for (const auto& [text, order] : kNames) {
    if (text == name) return order;
  }
  throw Error(ErrorKind::kInvalid, "order", "\"" + std::string(name) + "\" is not an order")
      .hint("the orders are random, shuffled, covering, blocks, megatron");
}

std::string_view crop_order_name(CropOrder order) {
  return kNames[static_cast<std::size_t>(order)].first;
}

std::uint64_t crops_of_epoch(std::uint64_t tokens, std::uint64_t block_size, CropOrder order) {
  if (tokens <= block_size) return 0;
  if (order == CropOrder::kShuffled) return (tokens - 1) / block_size;
  // As many as fit after the largest phase, so that every epoch has the same number.
  return (tokens - block_size) / block_size;
}

std::uint64_t crop_phase(std::uint64_t seed, std::uint64_t block_size, std::uint64_t epoch) {
  // A permutation of all phases, so that none is repeated within block_size epochs.
  return Permutation(block_size, seed ^ kPhaseSeed, epoch / block_size)(epoch % block_size);
}

void require_crops(std::uint64_t tokens, std::uint64_t block_size, CropOrder order) {
  if (block_size == 0)
    throw Error(ErrorKind::kInvalid, "loader", "block_size must be at least 1; got 0");
  const bool drawn = order == CropOrder::kRandom;
  if (tokens > block_size && (drawn || crops_of_epoch(tokens, block_size, order) > 0)) return;
  const std::uint64_t needed = has_phases(order) ? 2 * block_size : block_size + 1;
  throw Error(ErrorKind::kInvalid, "loader",
              "blocks of " + with_commas(block_size) + " tokens in order \"" +
                  std::string(crop_order_name(order)) + "\" need at least " + with_commas(needed) +
                  " tokens; there are " + with_commas(tokens))
      .hint("take a smaller block_size");
}

CropSequence::CropSequence(std::uint64_t tokens, std::uint64_t block_size, CropOrder order,
                           std::uint64_t seed)
    : tokens_(tokens), block_size_(block_size), seed_(seed), order_(order) {
  require_crops(tokens, block_size, order);
  if (order != CropOrder::kRandom) crops_ = crops_of_epoch(tokens, block_size, order);
}

SampleOrder::Place CropSequence::at(std::uint64_t position) {
  if (order_ == CropOrder::kRandom) {
    return {uniform_draw(seed_, 0, position, tokens_ - block_size_), 0};
  }
  const std::uint64_t epoch = position / crops_;
  if (!permutation_ || epoch != epoch_) {
    permutation_.emplace(crops_, seed_, epoch);
    phase_ = order_ == CropOrder::kCovering ? crop_phase(seed_, block_size_, epoch) : 0;
    epoch_ = epoch;
  }
  return {phase_ + (*permutation_)(position % crops_) * block_size_, epoch};
}

SampleOrder::Place BlockCrops::at(std::uint64_t position) {
  const Place crop = crops_.at(position);
  return {phase_of(crop.epoch) + crop.row * block_size_, crop.epoch};
}

void BlockCrops::fill(const Steps::Run& positions, std::span<std::uint64_t> starts) {
  crops_.fill(positions, starts);
  const std::uint64_t epoch_rows = crops_.rows_of_epoch();
  std::uint64_t position = positions.first;
  for (std::uint64_t& start : starts) {
    start = phase_of(position / epoch_rows) + start * block_size_;
    position += positions.distance;
  }
}

std::uint64_t BlockCrops::phase_of(std::uint64_t epoch) {
  if (epoch != epoch_) phase_ = crop_phase(seed_, block_size_, epoch);
  epoch_ = epoch;
  return phase_;
}

}  // namespace evenkeel
