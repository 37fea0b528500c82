#include "loader/schedule.h"

#include <string>
#include <utility>

#include "evenkeel/order.h"

namespace evenkeel {
namespace {

// Keeps the places of the ranks apart from the draws of the sets.
constexpr std::uint64_t kPlaceSeed = 0x7475726e5f6f665f;  // "turn_of_"

}  // namespace

std::uint64_t seed_of_set(std::uint64_t seed, std::size_t set) {
  return seed ^ (set * 0x9e3779b97f4a7c15);
}

StagedMixture mixture_of(const std::vector<ScheduledSet>& sets, const MixtureOptions& options,
                         std::uint64_t step_samples) {
  std::vector<StagedMixture::Set> mixed;
  mixed.reserve(sets.size());
  for (const ScheduledSet& set : sets) mixed.push_back({set.weight, set.order->epoch_samples()});
  return {mixed, options, step_samples};
}

Schedule::Schedule(std::vector<ScheduledSet> sets, const Steps& steps, std::uint64_t seed,
                   const MixtureOptions& mixture)
    : steps_(steps),
      seed_(seed),
      sets_(std::move(sets)),
      mixture_(mixture_of(sets_, mixture, steps.samples_of_step())) {
  std::uint64_t base = 0;
  for (const ScheduledSet& set : sets_) {
    bases_.push_back(base);
    base += set.rows;
  }
}

// With a mixture, ranks change places from step to step: its sets come round with a period, and a
// rank that always took the same part of a step would see too much of some and nothing of others.
std::uint64_t Schedule::place_of_rank(std::uint64_t step) const {
  const StepOptions& options = steps_.options();
  if (sets_.size() == 1) return options.rank;
  const std::uint64_t shift = uniform_draw(seed_ ^ kPlaceSeed, 0, step, options.world);
  return (options.rank + shift) % options.world;
}

void Schedule::fill(std::uint64_t step, std::span<std::uint64_t> rows) {
  if (sets_.size() == 1) {
    sets_.front().order->fill(steps_.run_of(step, place_of_rank(step)), rows);
    return;
  }
  std::size_t i = 0;
  for_each(step, [&](const Sample& sample) { rows[i++] = sample.row; });
}

}  // namespace evenkeel
