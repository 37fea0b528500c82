// The order of the crops of one set of tokens: a pure function of (seed, position), in O(1) memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "evenkeel/order.h"
#include "evenkeel/tokens.h"
#include "loader/row_order.h"
#include "loader/schedule.h"

namespace evenkeel {

// The number of crops in an epoch, for an order that has epochs.
std::uint64_t crops_of_epoch(std::uint64_t tokens, std::uint64_t block_size, CropOrder order);
// The number of tokens before the first crop of an epoch, for kCovering and kBlocks.
std::uint64_t crop_phase(std::uint64_t seed, std::uint64_t block_size, std::uint64_t epoch);
// Throws Error (kInvalid) if there are too few tokens for one crop.
void require_crops(std::uint64_t tokens, std::uint64_t block_size, CropOrder order);

// All orders except kBlocks and kMegatron. Not thread-safe: it caches the permutation of the last
// epoch.
class CropSequence final : public SampleOrder {
 public:
  // Throws as require_crops does.
  CropSequence(std::uint64_t tokens, std::uint64_t block_size, CropOrder order, std::uint64_t seed);

  Place at(std::uint64_t position) override;
  std::uint64_t epoch_samples() const override { return crops_; }

 private:
  const std::uint64_t tokens_, block_size_, seed_;
  const CropOrder order_;
  std::uint64_t crops_ = 0;
  std::uint64_t epoch_ = 0, phase_ = 0;
  std::optional<Permutation> permutation_;  // of epoch_
};

// The order kBlocks: adjacent crops are the rows of the order `blocks`. Not thread-safe.
class BlockCrops final : public SampleOrder {
 public:
  // `crops`, `order` and `mixed` as for RowOrder.
  BlockCrops(std::uint64_t crops, std::shared_ptr<const SharedOrder> order, bool mixed,
             std::uint64_t block_size, std::uint64_t seed)
      : crops_(crops, std::move(order), mixed), block_size_(block_size), seed_(seed) {}

  Place at(std::uint64_t position) override;
  void fill(const Steps::Run& positions, std::span<std::uint64_t> starts) override;
  std::uint64_t epoch_samples() const override { return crops_.epoch_samples(); }
  std::uint64_t turn() const override { return crops_.turn(); }

 private:
  std::uint64_t phase_of(std::uint64_t epoch);

  RowOrder crops_;
  const std::uint64_t block_size_, seed_;
  std::uint64_t epoch_ = UINT64_MAX, phase_ = 0;  // the last epoch and its phase
};

}  // namespace evenkeel
