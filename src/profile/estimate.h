// Estimates values that are too expensive to measure in every sample.
#pragma once

#include <vector>

#include "evenkeel/profile.h"

namespace evenkeel {

// Samples between two measurements of the page cache get an estimate. It follows the mapped file
// pages, which every sample has, and stays within the range of the two measurements. The PSS is
// estimated in the same way from the resident set. Samples after the last measurement keep its
// value. Unknown values stay unknown.
void estimate_between(std::vector<ProfileSample>& samples);

}  // namespace evenkeel
