// Items of several sets of files, mixed by weights.
#pragma once

#include <memory>
#include <vector>

#include "prepare/items.h"

namespace evenkeel {

// Items are taken from the sets by weight; items of one set stay in order. At every position, the
// number of items taken from each set is within one of its share. `input` has all options but the
// paths. With `repeat`, sets that run out begin again until each was used up once; without it, the
// sequence ends when the first set runs out. Offsets are computed from the mean length of items.
// Lines are counted first, and `counted` is called from time to time. Throws Error.
std::unique_ptr<ItemSource> open_mixed(const ItemInput& input,
                                       const std::vector<WeightedFiles>& sets, bool repeat,
                                       const Budget& budget, std::uint64_t memory,
                                       const CountedBytes& counted);

}  // namespace evenkeel
