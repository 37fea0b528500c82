// Quantiles of a stream of numbers in bounded memory.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "prepare/state_bytes.h"

namespace evenkeel {

// KLL (Karnin, Lang and Liberty, 2016): a number on level i stands for 2^i numbers. When a level is
// full, it is sorted and every second number moves to the next level. All numbers are kept until
// there are more than `size`. The result is determined by the seed.
class KllSketch {
 public:
  KllSketch(std::uint64_t size, std::uint64_t seed) : size_(size), random_(seed * 2 + 1) {}

  // The maximum memory of a sketch.
  static std::uint64_t memory(std::uint64_t size);
  // The largest error in the rank of any quantile, as a share of all numbers, with a probability of
  // 99 %.
  static double rank_error(std::uint64_t size);

  void add(std::span<const double> numbers);
  std::uint64_t count() const { return count_; }
  void save(StateWriter& state) const;
  void load(StateReader& state);  // of a sketch of the same size

  // The numbers in order, each with the count of numbers that are not above it.
  std::vector<std::pair<double, std::uint64_t>> cumulated() const;

 private:
  std::uint64_t capacity(std::size_t level) const;
  void compact(std::size_t level);
  bool coin();

  const std::uint64_t size_;
  std::uint64_t random_;
  std::uint64_t count_ = 0;
  std::vector<std::vector<double>> levels_ = {{}};  // sorted, except for the first
  std::vector<double> merged_;
};

}  // namespace evenkeel
