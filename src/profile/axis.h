// Where the lines of a grid go, and what is written beside them.
#pragma once

#include <string>
#include <vector>

namespace evenkeel {

struct Tick {
  double value;
  std::string label;
};

// From 0 to at most `most` in about `wanted` round steps. Sizes step by powers of
// two
// ("128 MiB"), counts by 1, 2 or 5 times a power of ten ("1,000"), times as clocks do ("30 s",
// "1:30" minutes, "1:30 h").
std::vector<Tick> size_ticks(double most, int wanted);
std::vector<Tick> count_ticks(double most, int wanted);
std::vector<Tick> time_ticks(double most, int wanted);

}  // namespace evenkeel
