// Decides which set the next sample comes from. Every prefix has the given share of each set, exact
// to within one sample.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace evenkeel {

// Tijdeman's rule for the chairman assignment problem ("The chairman assignment problem", Discrete
// Mathematics 32, 1980): after every step, each set has had its share of the steps to within less
// than one. Weights are integers over a period, after which all shares are exact. Seeking walks at
// most one period. Not thread-safe.
class Mixture {
 public:
  // Throws Error (kInvalid) for weights that are negative, not finite or all zero. The message
  // begins with `where`.
  explicit Mixture(const std::vector<double>& weights, const std::string& where = {});

  struct Draw {
    std::size_t set = 0;
    std::uint64_t index = 0;  // how many samples this set had before
  };
  Draw next();
  void seek(std::uint64_t position);
  // The set of the next draw, and how many draws each set had before it.
  std::size_t next_set() const;
  std::uint64_t before(std::size_t set) const;
  std::uint64_t position() const { return position_; }

  std::uint64_t period() const { return period_; }
  const std::vector<std::uint64_t>& shares() const { return shares_; }  // of the period

 private:
  std::vector<std::uint64_t> shares_;
  std::uint64_t period_ = 1;
  std::uint64_t position_ = 0;
  std::vector<std::uint64_t> taken_;  // in this period
};

}  // namespace evenkeel
