// A mixture whose weights change and whose sets may end: a sequence of plain mixtures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/mixture.h"
#include "loader/mixture.h"
#include "loader/steps.h"

namespace evenkeel {

// Positions count draws. A draw is one sample or, with order `blocks`, a turn: as many samples of a
// set as there are streams. A pure function of the position, except for internal caches. Not
// thread-safe.
class StagedMixture {
 public:
  struct Set {
    double weight = 1;
    std::uint64_t epoch_samples = 0;  // 0: its order has no epochs
  };
  // A step takes `step_samples`, and a draw `turn` of them. A stage begins with the first draw that
  // starts at its step or later, and a set has as many whole draws as its epochs hold. Throws Error
  // (kInvalid), which names the stage.
  StagedMixture(const std::vector<Set>& sets, const MixtureOptions& options,
                std::uint64_t step_samples, std::uint64_t turn = 1);

  struct Draw {
    std::size_t set = 0;
    std::uint64_t index = 0;  // in the order of the set
    std::size_t stage = 0;    // 0 until the second stage begins
    std::uint64_t taken =
        0;  // earlier draws of the set; unlike `index`, a repeat does not reset it
  };
  // Throws Error (kInvalid) at the end.
  Draw next();
  void seek(std::uint64_t position);

  // The set of the next draw, and how many draws a set had before it. The mixture must not end
  // here.
  std::size_t next_set() const { return parts_[part_].mixture.next_set(); }
  std::uint64_t before(std::size_t set) const {
    return parts_[part_].before[set] + parts_[part_].mixture.before(set);
  }

  bool changes() const { return weights_.size() > 1 || !most_.empty(); }

  // The number of samples after which the mixture ends, if it ends.
  std::optional<std::uint64_t> end() const {
    return end_ ? std::optional(*end_ * turn_) : std::nullopt;
  }

  // Everything that the first `samples` depend on, as one word and a blank. Empty if they depend on
  // plain weights only. For states: mixtures with the same text and the same turn drew the same
  // samples.
  std::string describe(std::uint64_t samples) const;
  // "share=3/4 " if the first `samples` depend on plain weights only; otherwise empty.
  std::string describe_share(std::size_t set, std::uint64_t samples) const;

 private:
  // Weights that apply from `first` to the beginning of the next part.
  struct Part {
    std::uint64_t first = 0;
    std::size_t stage = 0;
    Mixture mixture;
    std::vector<std::uint64_t> before = {};  // draws of each set; set for parts up to known_
  };
  // From `first` on, a set repeats its first `samples`.
  struct Repeat {
    std::uint64_t first = 0;
    std::size_t set = 0;
    std::uint64_t draws = 0;  // the period
  };

  void add_stages(const std::vector<Set>& sets, const MixtureOptions& options,
                  std::uint64_t step_samples);
  void add_limits(const std::vector<Set>& sets, const MixtureOptions& options);
  void limit_parts(const MixtureOptions& options);
  // Ends the mixture at `position` and keeps only the first `parts` parts.
  void end_at(std::uint64_t position, std::size_t parts);
  // Gives `set` weight 0 from `position` on, where it would be drawn from once more: splits the
  // part there, and changes all later parts.
  void drop(std::size_t part, std::size_t set, std::uint64_t position);
  // A set whose samples were all drawn, and the position where it would be drawn from once more.
  struct Exhaustion {
    std::size_t set = 0;
    std::uint64_t position = 0;
  };
  // The first of the limited sets that is exhausted in this part. Walks at most one period.
  std::optional<Exhaustion> first_exhausted(std::size_t part, const std::vector<bool>& limited);
  std::uint64_t end_of(std::size_t part) const;
  void know(std::size_t part);
  void enter(std::size_t part);
  bool plain_before(std::uint64_t samples) const;

  std::uint64_t turn_;  // samples of a draw
  std::vector<Part> parts_;
  std::vector<std::vector<double>> weights_;  // of the parts
  std::size_t known_ = 0;
  std::vector<std::uint64_t> most_;  // draws of each set; 0: no limit; empty: no limits at all
  std::vector<Repeat> repeats_;      // by `first`
  std::optional<std::uint64_t> end_;
  std::size_t part_ = 0;        // the part of the next sample
  std::uint64_t part_end_ = 0;  // its end
};

// Epochs after which a set starts again with its first epoch; 0: never.
inline std::uint64_t repeat_of(const MixtureOptions& options, std::size_t set) {
  const bool repeats = options.exhausted == Exhausted::kRepeat && set < options.max_epochs.size();
  return repeats ? options.max_epochs[set] : 0;
}

// Options for steps that end after `samples`, or with a mixture. Throws Error (kInvalid) if that is
// less than a step; `more` is how to get more samples, for its hint.
StepOptions ending_after(std::uint64_t samples, StepOptions steps, const std::string& more);
StepOptions ending_with(const StagedMixture& mixture, StepOptions steps);

}  // namespace evenkeel
