// Which crop comes when, for one set of tokens: a pure function of (seed, position), in O(1)
// memory.
#pragma once

#include <cstdint>
#include <optional>

#include "evenkeel/order.h"
#include "evenkeel/tokens.h"
#include "loader/schedule.h"

namespace evenkeel {

// One thread at a time: it remembers the permutation of the epoch it was last asked about.
class CropSequence final : public SampleOrder {
 public:
  // Throws Error (kInvalid) when there are too few tokens for one crop.
  CropSequence(std::uint64_t tokens, std::uint64_t block_size, CropOrder order, std::uint64_t seed);

  Place at(std::uint64_t position) override;
  std::uint64_t epoch_samples() const override { return blocks_; }

 private:
  std::uint64_t phase(std::uint64_t epoch) const;

  const std::uint64_t tokens_, block_size_, seed_;
  const CropOrder order_;
  std::uint64_t blocks_ = 0;
  std::uint64_t epoch_ = 0, phase_ = 0;
  std::optional<Permutation> permutation_;  // of epoch_
};

}  // namespace evenkeel
