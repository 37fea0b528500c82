// Which crops a rank takes at a step, from one set of tokens or from a mixture.
#pragma once

#include <cstdint>
#include <vector>

#include "evenkeel/tokens.h"
#include "format/layout.h"
#include "tokens/crop_order.h"
#include "tokens/mixture.h"

namespace evenkeel {

// The sets one after the other, as one stream; crops never cross from one to the next. Throws Error
// (kInvalid) when they do not store tokens alike.
Layout joined_layout(const std::vector<WeightedTokens>& sets);

// A pure function of the step, but for what it remembers to be quick. One thread at a time;
// `options` must outlive it.
class Schedule {
 public:
  Schedule(const std::vector<WeightedTokens>& sets, const LoaderOptions& options);

  struct Sample {
    std::uint64_t position = 0;  // in the global order
    Mixture::Draw draw;          // which set, and which of its samples
    Crop crop;
    std::uint64_t start = 0;  // in the joined stream
  };

  // The samples of this rank at a step, in order. A step takes world * batch_size samples, and each
  // rank a run of them.
  template <class Use>
  void for_each(std::uint64_t step, Use use) {
    const bool alone = crops_.size() == 1;
    const std::uint64_t first = (step * options_.world + run_of_rank(step)) * options_.batch_size;
    if (!alone) mixture_.seek(first);
    for (std::uint64_t i = 0; i < options_.batch_size; ++i) {
      const std::uint64_t position = first + i;
      const Mixture::Draw draw = alone ? Mixture::Draw{0, position} : mixture_.next();
      const Crop crop = crops_[draw.set].at(draw.index);
      use(Sample{position, draw, crop, bases_[draw.set] + crop.start});
    }
  }

  std::uint64_t epoch_samples() const { return crops_.front().epoch_samples(); }
  const Mixture& mixture() const { return mixture_; }

 private:
  std::uint64_t run_of_rank(std::uint64_t step) const;

  const LoaderOptions& options_;
  Mixture mixture_;
  std::vector<CropSequence> crops_;
  std::vector<std::uint64_t> bases_;
};

}  // namespace evenkeel
