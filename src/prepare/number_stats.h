// Statistics of a stream of numbers.
#pragma once

#include <span>

#include "evenkeel/stats.h"
#include "prepare/kll_sketch.h"

namespace evenkeel {

class NumberCollector {
 public:
  NumberCollector(std::uint64_t sketch, std::uint64_t seed) : sketch_(sketch, seed) {}
  static std::uint64_t memory(std::uint64_t sketch) {
    return sizeof(NumberCollector) + KllSketch::memory(sketch);
  }
  // Reorders `numbers`. Most efficient with some hundreds at a time.
  void add(std::span<double> numbers);
  NumberStats result(const StatsOptions& options) const;

 private:
  std::uint64_t nan_ = 0, positive_infinity_ = 0, negative_infinity_ = 0;
  double min_ = 0, max_ = 0, mean_ = 0, squares_ = 0;  // of differences to the mean
  KllSketch sketch_;
};

}  // namespace evenkeel
