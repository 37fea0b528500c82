#include "loader/schedule.h"

#include <string>
#include <utility>

#include "evenkeel/error.h"
#include "evenkeel/order.h"

namespace evenkeel {
namespace {

// Makes the places of the ranks independent of the draws of the sets.
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
                   StagedMixture mixture)
    : steps_(steps),
      seed_(seed),
      sets_(std::move(sets)),
      mixture_(std::move(mixture)),
      counting_(mixture_) {
  std::uint64_t base = 0;
  for (const ScheduledSet& set : sets_) {
    bases_.push_back(base);
    base += set.rows;
  }
}

// In a mixture whose ranks take runs, the ranks change places from step to step. The sets follow a
// periodic pattern, so a rank that always took the same part of a step would see too much of some
// sets and nothing of others.
std::uint64_t Schedule::place_of_rank(std::uint64_t step) const {
  const StepOptions& options = steps_.options();
  if (sets_.size() == 1 || steps_.interleaved()) return options.rank;
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

void Schedule::pieces(std::uint64_t step, std::vector<SamplePiece>& pieces) {
  pieces.clear();
  if (sets_.size() == 1) {
    pieces.push_back({0, steps_.taken_before(step), count(step)});
    return;
  }
  const std::uint64_t world = steps_.options().world;
  visit(step, [&](std::uint64_t, const StagedMixture::Draw& draw) {
    const std::uint64_t position = draw.taken / world;
    const bool follows = !pieces.empty() && pieces.back().set == draw.set &&
                         pieces.back().first + pieces.back().count == position;
    if (!follows) pieces.push_back({draw.set, position, 0});
    ++pieces.back().count;
  });
}

std::vector<std::uint64_t> Schedule::positions_at(std::uint64_t step) {
  if (sets_.size() == 1) return {steps_.taken_before(step)};
  const std::uint64_t turn = sets_.front().order->turn(), world = steps_.options().world;
  const std::uint64_t samples = steps_.samples_before(step);
  counting_.seek(samples / turn);
  std::vector<std::uint64_t> positions;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    positions.push_back(counting_.before(i) * (turn / world));
  }
  if (samples % turn > 0) positions[counting_.next_set()] += samples % turn / world;
  return positions;
}

}  // namespace evenkeel
