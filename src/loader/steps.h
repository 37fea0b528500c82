// Steps of a loader: which samples a step takes, where a loop ends, and which steps a worker has.
#pragma once

#include <cstdint>
#include <optional>

#include "evenkeel/error.h"
#include "evenkeel/loader.h"

namespace evenkeel {

struct StepOptions {
  std::uint64_t batch_size = 1, rank = 0, world = 1;
  LoaderWorkers workers = {};
  std::uint64_t steps = 0, epochs = 0;  // of a loop; at most one of them
};

// Of the options of a loader.
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
// The same for `epochs`, which take one set of data and an order that has them.
void check_epochs(const StepOptions& options, bool order_has_epochs, std::size_t sets);

// An epoch is less than a step.
Error no_whole_step(std::uint64_t epoch_samples, std::uint64_t step_samples);

// Samples are counted by all ranks together, from 0 on; a step takes world * batch_size of them.
// Batches are numbered 0, 1, 2, ... as this loader takes them: number n is step phase + n * stride.
// Immutable, so thread-safe.
class Steps {
 public:
  enum class Ends {
    kNone,  // an epoch's last samples and the next one's first share a step
    kDrop,  // an epoch ends with its last whole step; the rest is left out
    kShort  // an epoch's last step has what is left, divided evenly among the ranks
  };
  enum class Shares {
    kRuns,        // each rank takes a run of a step's samples
    kInterleaved  // rank r of w takes samples r, r + w, r + 2 * w, ... of a step
  };
  // `epoch_samples` may be 0 with kNone. Throws Error (kInvalid) when a loop would have no step.
  Steps(const StepOptions& options, std::uint64_t epoch_samples, Ends ends,
        Shares shares = Shares::kRuns);

  const StepOptions& options() const { return options_; }
  std::uint64_t samples_of_step() const { return options_.batch_size * options_.world; }

  struct Run {
    std::uint64_t first = 0, count = 0;  // samples
    std::uint64_t distance = 1;          // from one to the next
  };
  // What the rank in this place takes at a step.
  Run run_of(std::uint64_t step, std::uint64_t place) const;
  // Samples that a rank takes of an epoch before a step of it, and of a whole epoch. Not for kNone.
  std::uint64_t taken_of_epoch(std::uint64_t step) const {
    return step % epoch_steps_ * options_.batch_size;
  }
  std::uint64_t taken_of_epoch() const;
  std::uint64_t epoch_of(std::uint64_t step) const { return step / epoch_steps_; }
  // What a rank has taken before a step, in all epochs.
  std::uint64_t taken_before(std::uint64_t step) const {
    if (ends_ == Ends::kNone) return step * options_.batch_size;
    return epoch_of(step) * taken_of_epoch() + taken_of_epoch(step);
  }
  bool interleaved() const { return shares_ == Shares::kInterleaved; }
  // Samples before a step; with kDrop those that were left out are counted, too.
  std::uint64_t samples_before(std::uint64_t step) const;
  // The step that begins there; empty if none does.
  std::optional<std::uint64_t> step_at(std::uint64_t samples) const;
  std::uint64_t epoch_samples() const { return epoch_samples_; }

  // The last step whose samples can be counted in 63 bits, as draws are; see uniform_draw. The
  // steps that other workers take beside it can be counted, too.
  std::uint64_t last_step() const;
  void require_step(const char* operation, std::uint64_t step) const;

  std::uint64_t step_of(std::uint64_t number) const {
    return options_.workers.phase + number * options_.workers.stride;
  }
  // The first number whose step is `step` or later.
  std::uint64_t number_of(std::uint64_t step) const;

  std::uint64_t loop_steps() const { return loop_steps_; }  // 0: it does not end
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
