// Megatron's BlendedDataset, which takes the next sample from the data set with the largest error
// so far, and the order of a loader that uses it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/budget.h"
#include "evenkeel/tokens.h"
#include "loader/schedule.h"
#include "tokens/megatron_samples.h"

namespace evenkeel {

// Weights divided by their sum, bit for bit as NumPy computes it.
std::vector<double> megatron_normalized(const std::vector<double>& weights);

// Stores how many samples each set had at every 4,096th position: 8 bytes per set, reserved from
// the budget. Immutable, so thread-safe.
class MegatronBlend {
 public:
  // A blend of `size` samples. If `size` is 0, it has all samples of sets with these sizes.
  MegatronBlend(const std::vector<double>& weights, std::uint64_t size,
                std::vector<std::uint64_t> sizes, const Budget& budget);

  std::uint64_t size() const { return size_; }
  // The total number of samples of each set.
  std::span<const std::uint64_t> counts() const { return counts_; }

  struct Draw {
    std::size_t set = 0;
    std::uint64_t index = 0;
  };
  // Not thread-safe. Seeking walks at most 4,095 draws.
  class Cursor {
   public:
    explicit Cursor(const MegatronBlend& blend) : blend_(&blend), counts_(blend.weights_.size()) {}
    Draw at(std::uint64_t position);

   private:
    const MegatronBlend* blend_;
    std::uint64_t position_ = 0;
    std::vector<std::uint64_t> counts_;
  };

 private:
  static constexpr std::uint64_t kEvery = 4096;
  std::size_t choose(std::uint64_t position, std::span<const std::uint64_t> counts) const;

  std::vector<double> weights_;
  std::vector<std::uint64_t> sizes_;  // of sets that end; empty if none does
  std::uint64_t size_;
  Reservation share_;
  std::vector<std::uint64_t> marks_;  // counts of each set, at every kEvery-th position
  std::vector<std::uint64_t> counts_;
};

// Everything that a loader needs: samples of one set or of a blend. Samples are numbered through
// all sets, one after the other. Immutable, so thread-safe.
class MegatronDataset {
 public:
  // MegatronOptions::samples is 0 for one epoch. Throws Error (kInvalid, kBudget).
  MegatronDataset(const std::vector<WeightedTokens>& sets, std::uint64_t block_size,
                  const MegatronOptions& options, std::uint64_t seed);

  std::uint64_t size() const { return blend_ ? blend_->size() : sets_.front().size(); }
  std::uint64_t rows() const { return firsts_.back(); }
  std::uint64_t most_runs() const;
  const std::optional<MegatronBlend>& blend() const { return blend_; }
  const MegatronSamples& set(std::size_t number) const { return sets_[number]; }

  std::uint64_t row(std::size_t set, std::uint64_t index) const {
    return firsts_[set] + sets_[set][index];
  }
  struct Sample {
    std::size_t set = 0;
    std::uint64_t number = 0;
  };
  Sample sample(std::uint64_t row) const;

  // Everything that the order depends on, except data, seed and block size. For states.
  const std::string& describe() const { return text_; }

 private:
  std::deque<MegatronSamples> sets_;
  std::vector<std::uint64_t> firsts_;  // the row of the first sample of each set, and the end
  std::optional<MegatronBlend> blend_;
  std::string text_;
};

class MegatronOrder final : public SampleOrder {
 public:
  explicit MegatronOrder(std::shared_ptr<const MegatronDataset> index);

  Place at(std::uint64_t position) override;
  std::uint64_t epoch_samples() const override { return 0; }

 private:
  const std::shared_ptr<const MegatronDataset> index_;
  std::optional<MegatronBlend::Cursor> cursor_;
};

}  // namespace evenkeel
