// Items of several sets of files, mixed by weights.
#pragma once

#include <memory>
#include <vector>

#include "prepare/items.h"

namespace evenkeel {

// Items are taken from the sets by their weights, each set's in order: at every place, each set has
// had its share to within one item. `input` says all but the paths. With `repeat`, sets that run
// out begin again until each was used up once; without, it ends where the first runs out. Offsets
// are those of items of the mean length. Lines are counted first; `counted` is called now and then.
// Throws Error.
std::unique_ptr<ItemSource> open_mixed(const ItemInput& input,
                                       const std::vector<WeightedFiles>& sets, bool repeat,
                                       const Budget& budget, std::uint64_t memory,
                                       const CountedBytes& counted);

}  // namespace evenkeel
