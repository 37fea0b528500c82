// Quantiles of a stream of numbers in bounded memory.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "prepare/state_bytes.h"

namespace evenkeel {

// KLL (Karnin, Lang and Liberty, 2016): a number on level i stands for 2^i numbers. A level that is
// full is sorted, and every second of its numbers goes up. All numbers are kept until there are
// more than `size`. Deterministic by the seed.
class KllSketch {
 public:
  KllSketch(std::uint64_t size, std::uint64_t seed) : size_(size), random_(seed * 2 + 1) {}

  // The most bytes that a sketch takes.
  static std::uint64_t memory(std::uint64_t size);
  // How far the place of any quantile is off at most, as a share of all, with a probability of
  // 99 %.
  static double rank_error(std::uint64_t size);

  void add(std::span<const double> numbers);
  std::uint64_t count() const { return count_; }
  void save(StateWriter& state) const;
  void load(StateReader& state);  // of a sketch of the same size

  // Numbers in order, each with how many numbers are not above it.
  std::vector<std::pair<double, std::uint64_t>> cumulated() const;

 private:
  std::uint64_t capacity(std::size_t level) const;
  void compact(std::size_t level);
  bool coin();

  const std::uint64_t size_;
  std::uint64_t random_;
  std::uint64_t count_ = 0;
  std::vector<std::vector<double>> levels_ = {{}};  // sorted, but for the first
  std::vector<double> merged_;
};

}  // namespace evenkeel
