#include "loader/mixture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/number.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kLargestExact = 4096;
constexpr std::uint64_t kFine = 1 << 20;

// Each share times `period`, rounded; empty if one of them is not a whole number.
std::vector<std::uint64_t> exact_shares(const std::vector<double>& parts, std::uint64_t period) {
  std::vector<std::uint64_t> shares;
  for (const double part : parts) {
    const double scaled = part * static_cast<double>(period);
    const double whole = std::round(scaled);
    if (std::abs(scaled - whole) > 1e-9 || (whole == 0 && part > 0)) return {};
    shares.push_back(static_cast<std::uint64_t>(whole));
  }
  return shares;
}

// Scales shares that add up to `sum` so that they add up to kFine. Every set keeps at least one;
// the rest shrinks in proportion.
void shrink(std::vector<std::uint64_t>& shares, std::uint64_t sum) {
  const auto sets = static_cast<std::uint64_t>(
      std::ranges::count_if(shares, [](std::uint64_t share) { return share > 0; }));
  if (sets > kFine) {
    throw Error(
        ErrorKind::kInvalid, "mixture",
        std::to_string(sets) + " sets have a weight; at most " + std::to_string(kFine) + " may")
        .hint("open files of one kind as one set");
  }
  // The remainder of each rounding is carried to the next share, so the sum is exact. Both factors
  // are below 2^21: the shares add up to kFine plus at most one for each set.
  const std::uint64_t spare = sum - sets;  // above 0: `sum` is more than kFine, `sets` is not
  std::uint64_t carry = 0;
  for (std::uint64_t& share : shares) {
    if (share == 0) continue;
    carry += (share - 1) * (kFine - sets);
    share = 1 + carry / spare;  // NOLINT(clang-analyzer-core.DivideZero)
    carry %= spare;
  }
}

// Rounds down, with at least one for every set that has a weight. Of few sets, the largest absorbs
// the difference: less than a thousandth of its share. States of version 0.1 depend on that. Of
// many sets, those with the largest remainders get one more; of equal ones, the first.
std::vector<std::uint64_t> rounded_shares(const std::vector<double>& parts) {
  std::vector<std::uint64_t> shares;
  std::vector<double> remainders;
  std::vector<std::size_t> sets;  // with a weight
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double scaled = parts[i] * static_cast<double>(kFine);
    const auto share = static_cast<std::uint64_t>(scaled);
    shares.push_back(parts[i] > 0 ? std::max<std::uint64_t>(share, 1) : 0);
    remainders.push_back(scaled - static_cast<double>(shares.back()));
    if (parts[i] > 0) sets.push_back(i);
  }
  const std::uint64_t sum = std::accumulate(shares.begin(), shares.end(), std::uint64_t{0});
  constexpr std::size_t kFewSets = 32;
  if (sets.size() <= kFewSets) {
    const auto largest = std::ranges::max_element(shares);
    *largest = *largest + kFine - sum;
    return shares;
  }
  if (sum > kFine) {
    shrink(shares, sum);
    return shares;
  }
  std::ranges::stable_sort(sets, std::greater{}, [&](std::size_t set) { return remainders[set]; });
  // Less than one is missing for each set.
  for (std::uint64_t i = 0; i < kFine - sum; ++i) ++shares[sets[i % sets.size()]];
  return shares;
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights, const std::string& where) {
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!std::isfinite(weights[i]) || weights[i] < 0) {
      throw Error(ErrorKind::kInvalid, "mixture",
                  where + "weight " + std::to_string(i) + " is " + number_text(weights[i]))
          .hint("weights are relative shares: 0 or more, finite, not all 0");
    }
    sum += weights[i];
  }
  if (!(sum > 0) || !std::isfinite(sum)) {
    throw Error(ErrorKind::kInvalid, "mixture",
                where + "the weights of " + std::to_string(weights.size()) + " sets add up to " +
                    number_text(sum))
        .hint("at least one set needs a weight above 0");
  }
  std::vector<double> parts;
  parts.reserve(weights.size());
  for (const double weight : weights) parts.push_back(weight / sum);
  for (period_ = 1; period_ <= kLargestExact; ++period_) {
    shares_ = exact_shares(parts, period_);
    if (!shares_.empty()) break;
  }
  if (shares_.empty()) {
    shares_ = rounded_shares(parts);
    period_ = kFine;
  }
  taken_.resize(shares_.size());
}

std::uint64_t Mixture::before(std::size_t set) const {
  const std::uint64_t taken = position_ % period_ == 0 ? 0 : taken_[set];
  return position_ / period_ * shares_[set] + taken;
}

std::size_t Mixture::next_set() const {
  const std::uint64_t step = position_ % period_;
  // In units of 1 / (period * slack): a set is due once it lags by 1/slack. Of those that are due,
  // the one whose lag would first reach 1 - 1/slack is chosen.
  const auto slack = static_cast<std::int64_t>(std::max<std::size_t>(2 * shares_.size(), 4) - 2);
  const auto period = static_cast<std::int64_t>(period_);
  std::size_t chosen = shares_.size();
  std::int64_t chosen_room = 0;
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    if (shares_[i] == 0) continue;
    const auto share = static_cast<std::int64_t>(shares_[i]);
    const auto taken = static_cast<std::int64_t>(step == 0 ? 0 : taken_[i]);
    const std::int64_t lag = (share * static_cast<std::int64_t>(step + 1) - taken * period) * slack;
    if (lag < period) continue;
    const std::int64_t room = period * slack - period - lag;  // until its lag is too large
    // Compares room / share without a division; both shares are positive.
    const bool first = chosen == shares_.size() ||
                       static_cast<__int128>(room) * static_cast<__int128>(shares_[chosen]) <
                           static_cast<__int128>(chosen_room) * share;
    if (first) {
      chosen = i;
      chosen_room = room;
    }
  }
  return chosen;
}

Mixture::Draw Mixture::next() {
  if (position_ % period_ == 0) std::ranges::fill(taken_, 0);
  const std::size_t chosen = next_set();
  const Draw draw{chosen, before(chosen)};
  ++taken_[chosen];
  ++position_;
  return draw;
}

void Mixture::seek(std::uint64_t position) {
  if (position == position_) return;
  const bool ahead = position > position_ && position / period_ == position_ / period_;
  if (!ahead) {
    position_ = position / period_ * period_;
    std::ranges::fill(taken_, 0);
  }
  while (position_ < position) next();
}

}  // namespace evenkeel
