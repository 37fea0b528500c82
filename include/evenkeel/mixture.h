// Mixtures whose weights change during training, and sets that end.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "evenkeel/compiler.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// From a step on, until the next stage begins.
struct MixtureStage {
  std::uint64_t step = 0;
  std::vector<double> weights;  // one for each set, relative to one another
};

// What happens when a set has had its max_epochs, and would be drawn from once more.
enum class Exhausted : std::uint8_t {
  kStop,    // the loader ends with the last whole step before
  kDrop,    // the other sets of the stage share its weight; with none left the loader ends
  kRepeat,  // its epochs come again from the first on, in the same orders
};
Exhausted parse_exhausted(std::string_view name);  // "stop", "drop", "repeat"
std::string_view exhausted_name(Exhausted exhausted);

// For loaders of several sets. All of it is counted in samples of all ranks together, so that it
// does not depend on how a step is divided among ranks. Seeking takes O(stages), and a walk of at
// most one period of the weights for each; see WeightedTokens. The order `blocks` takes turns of as
// many samples of a set as it has streams: what is said of a sample is true of a turn. A stage then
// begins with the first turn that begins at its step or later, and max_epochs count whole turns.
struct MixtureOptions {
  // In the order of their steps. The weights of the sets themselves count until the first of them
  // begins. Within each stage, every set has its share to within one sample at every prefix; each
  // set goes on where the stage before left it.
  std::vector<MixtureStage> stages = {};
  // The most epochs of each set, or 0 for no limit; empty: no limits. Takes an order with epochs.
  std::vector<std::uint64_t> max_epochs = {};
  Exhausted exhausted = Exhausted::kStop;
};

}  // namespace evenkeel

#pragma GCC visibility pop
