// Values between two measurements that are too expensive to take in every sample.
#pragma once

#include <vector>

#include "evenkeel/profile.h"

namespace evenkeel {

// Between two samples that measured the page cache, the others get an estimate: it follows the
// mapped file pages, which every sample has, and never leaves the range of the two measurements.
// The same for the PSS, which follows the resident set. Samples after the last measurement keep its
// value; unknown stays unknown.
void estimate_between(std::vector<ProfileSample>& samples);

}  // namespace evenkeel
