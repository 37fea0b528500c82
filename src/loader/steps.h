// Steps of a loader: which samples a step takes, where a loop ends, and which steps a worker takes.
#pragma once

#include <cstdint>
#include <optional>

#include "evenkeel/error.h"
#include "evenkeel/loader.h"

namespace evenkeel {

struct StepOptions {
  std::uint64_t batch_size = 1, rank = 0, world = 1;
  LoaderWorkers workers = {};
  std::uint64_t steps = 0, epochs = 0;  // of a loop; at most one of them is set
};

// The step options among the options of a loader.
template <class Options>
StepOptions steps_of(const Options& options) {
  return {.batch_size = options.batch_size,
          .rank = options.rank,
          .world = options.world,
          .workers = options.workers,
          .steps = options.steps,
          .epochs = options.epochs};
}

// Throws Error (kInvalid) with the numbers.
void check_steps(const StepOptions& options);
// The same for `epochs`, which need a single set of data and an order that has epochs.
void check_epochs(const StepOptions& options, bool order_has_epochs, std::size_t sets);

// The error for an epoch that is smaller than a step.
Error no_whole_step(std::uint64_t epoch_samples, std::uint64_t step_samples);

// Samples are counted across all ranks, from 0. A step takes world * batch_size of them. Batches
// are numbered 0, 1, 2, ... in the order in which this loader takes them: batch n is step phase + n
// * stride. Immutable, so thread-safe.
class Steps {
 public:
  enum class Ends {
    kNone,  // the last samples of an epoch and the first of the next may share a step
    kDrop,  // an epoch ends with its last whole step; the rest is left out
    kShort  // the last step of an epoch has the rest, divided evenly among the ranks
  };
  enum class Shares {
    kRuns,        // each rank takes a run of a step's samples
    kInterleaved  // rank r of w takes samples r, r + w, r + 2 * w, ... of a step
  };
  // `epoch_samples` may be 0 with kNone. Throws Error (kInvalid) if a loop would have no step.
  Steps(const StepOptions& options, std::uint64_t epoch_samples, Ends ends,
        Shares shares = Shares::kRuns);

  const StepOptions& options() const { return options_; }
  std::uint64_t samples_of_step() const { return options_.batch_size * options_.world; }

  struct Run {
    std::uint64_t first = 0, count = 0;  // samples
    std::uint64_t distance = 1;          // from one sample to the next
  };
  // The samples that the rank in this place takes at a step.
  Run run_of(std::uint64_t step, std::uint64_t place) const;
  // How many samples a rank takes of an epoch before this step, and of a whole epoch. Not for
  // kNone.
  std::uint64_t taken_of_epoch(std::uint64_t step) const {
    return step % epoch_steps_ * options_.batch_size;
  }
  std::uint64_t taken_of_epoch() const;
  std::uint64_t epoch_of(std::uint64_t step) const { return step / epoch_steps_; }
  // How many samples a rank takes before a step, across epochs.
  std::uint64_t taken_before(std::uint64_t step) const {
    if (ends_ == Ends::kNone) return step * options_.batch_size;
    return epoch_of(step) * taken_of_epoch() + taken_of_epoch(step);
  }
  bool interleaved() const { return shares_ == Shares::kInterleaved; }
  // How many samples there are before a step. With kDrop this includes those that were left out.
  std::uint64_t samples_before(std::uint64_t step) const;
  // The step that begins after this many samples; empty if none does.
  std::optional<std::uint64_t> step_at(std::uint64_t samples) const;
  std::uint64_t epoch_samples() const { return epoch_samples_; }

  // The last step whose samples can be counted in 63 bits, which draws are limited to; see
  // uniform_draw. The steps that other workers take next to it are within this limit, too.
  std::uint64_t last_step() const;
  void require_step(const char* operation, std::uint64_t step) const;

  std::uint64_t step_of(std::uint64_t number) const {
    return options_.workers.phase + number * options_.workers.stride;
  }
  // The first number whose step is `step` or later.
  std::uint64_t number_of(std::uint64_t step) const;

  std::uint64_t loop_steps() const { return loop_steps_; }  // 0: loops do not end
  // The step after the last of the loop that `step` is in.
  std::uint64_t end_of_loop(std::uint64_t step) const;

 private:
  std::uint64_t steps_of_loop() const;

  const StepOptions options_;
  const std::uint64_t epoch_samples_;
  const Ends ends_;
  const Shares shares_;
  const std::uint64_t epoch_steps_;  // 0 with kNone
  const std::uint64_t loop_steps_;
};

}  // namespace evenkeel
