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
  // The figures do not depend on how many numbers are added at a time: they are rounded as blocks
  // of kTogether numbers are.
  void add(std::span<const double> numbers);
  NumberStats result(const StatsOptions& options);
  void save(StateWriter& state) const;
  void load(StateReader& state);

  static constexpr std::size_t kTogether = 256;

 private:
  void add_block(std::span<double> numbers);  // which it reorders

  double waiting_[kTogether];  // numbers that are no block yet
  std::size_t count_waiting_ = 0;
  std::uint64_t nan_ = 0, positive_infinity_ = 0, negative_infinity_ = 0;
  double min_ = 0, max_ = 0, mean_ = 0, squares_ = 0;  // of differences to the mean
  KllSketch sketch_;
};

}  // namespace evenkeel
