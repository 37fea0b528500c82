#include "tokens/schedule.h"

#include <utility>

#include "base/visible.h"
#include "evenkeel/error.h"
#include "tokens/impl.h"

namespace evenkeel {
namespace {

// Keeps the sets of a mixture apart; the first one draws as it would alone.
std::uint64_t seed_of_set(std::uint64_t seed, std::size_t set) {
  return seed ^ (set * 0x9e3779b97f4a7c15);
}

std::vector<double> weights_of(const std::vector<WeightedTokens>& sets) {
  std::vector<double> weights;
  weights.reserve(sets.size());
  for (const WeightedTokens& set : sets) weights.push_back(set.weight);
  return weights;
}

// Keeps the places of the ranks apart from the draws of the sets.
constexpr std::uint64_t kPlaceSeed = 0x7475726e5f6f665f;  // "turn_of_"

}  // namespace

Layout joined_layout(const std::vector<WeightedTokens>& sets) {
  Layout all = TokenInternals::of(sets.front().tokens).layout();
  all.segments.clear();
  all.paths.clear();
  all.rows = 0;
  for (const WeightedTokens& one : sets) {
    const Layout& layout = TokenInternals::of(one.tokens).layout();
    if (layout.dtype != all.dtype || layout.swapped != all.swapped) {
      throw Error(ErrorKind::kInvalid, "mixture",
                  visible(layout.paths.front()) + " stores " + layout.dtype.name() + ", " +
                      visible(sets.front().tokens.paths().front()) + " stores " + all.dtype.name())
          .hint("the sets of a mixture must store tokens alike");
    }
    for (Segment segment : layout.segments) {
      segment.first_row += all.rows;
      all.segments.push_back(std::move(segment));
    }
    all.paths.insert(all.paths.end(), layout.paths.begin(), layout.paths.end());
    all.rows += layout.rows;
  }
  all.shape = {all.rows};
  return all;
}

Schedule::Schedule(const std::vector<WeightedTokens>& sets, const LoaderOptions& options)
    : options_(options), mixture_(weights_of(sets)) {
  std::uint64_t base = 0;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const std::uint64_t tokens = sets[i].tokens.size();
    crops_.emplace_back(tokens, options.block_size, options.order, seed_of_set(options.seed, i));
    bases_.push_back(base);
    base += tokens;
  }
}

// With a mixture, ranks change places from step to step: its sets come round with a period, and a
// rank that always took the same part of a step would see too much of some and nothing of others.
std::uint64_t Schedule::run_of_rank(std::uint64_t step) const {
  if (crops_.size() == 1) return options_.rank;
  const std::uint64_t shift = uniform_draw(options_.seed ^ kPlaceSeed, 0, step, options_.world);
  return (options_.rank + shift) % options_.world;
}

}  // namespace evenkeel
