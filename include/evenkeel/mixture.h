// Options for mixtures: weights that change during training, and limits on how often a set repeats.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "evenkeel/compiler.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// The weights that apply from a step on, until the next stage begins.
struct MixtureStage {
  std::uint64_t step = 0;
  std::vector<double> weights;  // one for each set, relative to each other
};

// What happens when a set has completed its max_epochs and another sample of it is due.
enum class Exhausted : std::uint8_t {
  kStop,    // the loader ends with the last whole step before that
  kDrop,    // the other sets of the stage share its weight; if none is left, the loader ends
  kRepeat,  // its epochs repeat from the first, in the same orders
};
Exhausted parse_exhausted(std::string_view name);  // "stop", "drop", "repeat"
std::string_view exhausted_name(Exhausted exhausted);

// For loaders of several sets. Everything is counted in samples of all ranks together, so it does
// not depend on how a step is divided among ranks. Seeking walks at most one period of the weights
// for each stage; see WeightedTokens. With order `blocks`, sets take turns of as many samples as
// there are streams, and shares are exact in turns: a stage begins with the first turn that starts
// at its step or later, and max_epochs counts whole turns.
struct MixtureOptions {
  // Ordered by step. Until the first stage begins, the weights of the sets themselves apply. Within
  // each stage, every set has its share to within one sample at every prefix. Each set continues
  // where the previous stage left it.
  std::vector<MixtureStage> stages = {};
  // The maximum number of epochs of each set, or 0 for no limit; empty: no limits. Needs an order
  // that has epochs.
  std::vector<std::uint64_t> max_epochs = {};
  Exhausted exhausted = Exhausted::kStop;
};

}  // namespace evenkeel

#pragma GCC visibility pop
