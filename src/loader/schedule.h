// Which samples a rank takes at a step, from one set of data or from a mixture.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "loader/staged_mixture.h"
#include "loader/steps.h"

namespace evenkeel {

// The order of one set of data: which sample is at a position. A pure function of the position,
// except for internal caches. Not thread-safe.
class SampleOrder {
 public:
  struct Place {
    std::uint64_t row = 0;    // of the set: a row, or the first token of a crop
    std::uint64_t epoch = 0;  // 0 for an order without epochs
  };
  virtual ~SampleOrder() = default;
  virtual Place at(std::uint64_t position) = 0;
  // The rows at these positions.
  virtual void fill(const Steps::Run& positions, std::span<std::uint64_t> rows) {
    for (std::uint64_t i = 0; i < positions.count; ++i) {
      rows[i] = at(positions.first + i * positions.distance).row;
    }
  }
  virtual std::uint64_t epoch_samples() const = 0;  // 0 for an order without epochs
  // How many samples a mixture takes from a set at a time.
  virtual std::uint64_t turn() const { return 1; }
};

// Consecutive positions of a rank in the order of one set, counted across epochs. They count on
// when a set repeats its epochs.
struct SamplePiece {
  std::size_t set = 0;
  std::uint64_t first = 0, count = 0;
};

// One set of a mixture.
struct ScheduledSet {
  double weight = 1;
  std::uint64_t rows = 0;
  std::unique_ptr<SampleOrder> order;
};

// The mixture of these sets; a step takes `step_samples`. Not for kBlocks, which takes turns.
StagedMixture mixture_of(const std::vector<ScheduledSet>& sets, const MixtureOptions& options,
                         std::uint64_t step_samples);

// A different seed for each set of a mixture. The first set has the seed that it would have alone.
std::uint64_t seed_of_set(std::uint64_t seed, std::size_t set);

// A pure function of the step, except for internal caches. Not thread-safe.
class Schedule {
 public:
  Schedule(std::vector<ScheduledSet> sets, const Steps& steps, std::uint64_t seed,
           StagedMixture mixture);

  struct Sample {
    std::uint64_t position = 0;  // in the global order
    std::size_t set = 0;
    std::size_t stage = 0;  // of a mixture that changes
    SampleOrder::Place place;
    std::uint64_t row = 0;  // counted through all sets, one after the other
  };

  // The samples of this rank at a step, in order.
  template <class Use>
  void for_each(std::uint64_t step, Use use) {
    visit(step, [&](std::uint64_t position, const StagedMixture::Draw& draw) {
      const SampleOrder::Place place = sets_[draw.set].order->at(draw.index);
      use(Sample{position, draw.set, draw.stage, place, bases_[draw.set] + place.row});
    });
  }

  // The same as positions of this rank in the orders of the sets. Only for Shares::kInterleaved.
  void pieces(std::uint64_t step, std::vector<SamplePiece>& pieces);
  // This rank's position in the order of each set at the beginning of a step.
  std::vector<std::uint64_t> positions_at(std::uint64_t step);

  // The number of samples of this rank at a step, and only their rows.
  std::uint64_t count(std::uint64_t step) const {
    return steps_.run_of(step, place_of_rank(step)).count;
  }
  void fill(std::uint64_t step, std::span<std::uint64_t> rows);

  const Steps& steps() const { return steps_; }
  std::size_t sets() const { return sets_.size(); }
  const StagedMixture& mixture() const { return mixture_; }

 private:
  // Calls use(position, draw) for the samples of this rank at a step.
  template <class Use>
  void visit(std::uint64_t step, Use use) {
    const Steps::Run run = steps_.run_of(step, place_of_rank(step));
    const std::uint64_t turn = sets_.size() == 1 ? 1 : sets_.front().order->turn();
    StagedMixture::Draw draw;
    std::uint64_t end = 0;  // of the turn that `draw` began
    if (sets_.size() > 1) mixture_.seek(run.first / turn);
    for (std::uint64_t i = 0; i < run.count; ++i) {
      const std::uint64_t position = run.first + i * run.distance;
      if (sets_.size() == 1) {
        use(position, StagedMixture::Draw{0, position, 0, position});
        continue;
      }
      if (position >= end) {
        draw = mixture_.next();
        end = (position / turn + 1) * turn;
      }
      const std::uint64_t within = position % turn;
      use(position, StagedMixture::Draw{draw.set, draw.index * turn + within, draw.stage,
                                        draw.taken * turn + within});
    }
  }
  std::uint64_t place_of_rank(std::uint64_t step) const;

  const Steps steps_;
  const std::uint64_t seed_;
  std::vector<ScheduledSet> sets_;
  StagedMixture mixture_;
  StagedMixture counting_;  // for positions_at, which is called for other steps
  std::vector<std::uint64_t> bases_;
};

}  // namespace evenkeel
