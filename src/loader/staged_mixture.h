// A mixture whose weights change, and whose sets may end: stages of plain mixtures, one after the
// other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/mixture.h"
#include "loader/mixture.h"
#include "loader/steps.h"

namespace evenkeel {

// Positions count draws. A draw is one sample, or with the order `blocks` a turn: as many samples
// of a set as there are streams. A pure function of the position, but for what it remembers to be
// quick. One thread at a time.
class StagedMixture {
 public:
  struct Set {
    double weight = 1;
    std::uint64_t epoch_samples = 0;  // 0: its order has no epochs
  };
  // A step takes `step_samples`, and a draw `turn` of them. A stage begins with the first draw that
  // begins at its step or later, and a set has as many whole draws as its epochs hold. Throws Error
  // (kInvalid) that names the stage.
  StagedMixture(const std::vector<Set>& sets, const MixtureOptions& options,
                std::uint64_t step_samples, std::uint64_t turn = 1);

  struct Draw {
    std::size_t set = 0;
    std::uint64_t index = 0;  // of the set's own order
    std::size_t stage = 0;    // of the options: 0 until the second one begins
    std::uint64_t taken = 0;  // draws of the set before; unlike `index` it counts on at a repeat
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

  // The samples after which there is nothing to draw.
  std::optional<std::uint64_t> end() const {
    return end_ ? std::optional(*end_ * turn_) : std::nullopt;
  }

  // All that the first `samples` depend on, in one word and a blank; nothing where plain weights
  // say it. For states: mixtures with the same text and the same turn drew the same samples.
  std::string describe(std::uint64_t samples) const;
  // "share=3/4 " where plain weights say what the first `samples` are, else nothing.
  std::string describe_share(std::size_t set, std::uint64_t samples) const;

 private:
  // Weights that hold from one position to the next part's.
  struct Part {
    std::uint64_t first = 0;
    std::size_t stage = 0;
    Mixture mixture;
    std::vector<std::uint64_t> before = {};  // of each set; known for the parts up to known_
  };
  // From here on a set begins again at its first epoch.
  struct Repeat {
    std::uint64_t first = 0;
    std::size_t set = 0;
    std::uint64_t draws = 0;  // that it repeats
  };

  void add_stages(const std::vector<Set>& sets, const MixtureOptions& options,
                  std::uint64_t step_samples);
  void add_limits(const std::vector<Set>& sets, const MixtureOptions& options);
  void limit_parts(const MixtureOptions& options);
  // Keeps so many parts.
  void end_at(std::uint64_t position, std::size_t parts);
  // Ends the part where `set` would be drawn from once more, and all later parts without it.
  void drop(std::size_t part, std::size_t set, std::uint64_t position);
  // A set of which all samples were drawn, and where it would be drawn from once more.
  struct Exhaustion {
    std::size_t set = 0;
    std::uint64_t position = 0;
  };
  // The first of the limited sets in this part. Walks at most one period.
  std::optional<Exhaustion> first_exhausted(std::size_t part, const std::vector<bool>& limited);
  std::uint64_t end_of(std::size_t part) const;
  void know(std::size_t part);
  void enter(std::size_t part);
  bool plain_before(std::uint64_t samples) const;

  std::uint64_t turn_;  // samples of a draw
  std::vector<Part> parts_;
  std::vector<std::vector<double>> weights_;  // of the parts
  std::size_t known_ = 0;
  std::vector<std::uint64_t> most_;  // draws of each set, 0 for no limit; empty: no limits
  std::vector<Repeat> repeats_;      // by `first`
  std::optional<std::uint64_t> end_;
  std::size_t part_ = 0;        // that the next sample is drawn from
  std::uint64_t part_end_ = 0;  // its end
};

// Epochs after which a set begins again with its first; 0: never.
inline std::uint64_t repeat_of(const MixtureOptions& options, std::size_t set) {
  const bool repeats = options.exhausted == Exhausted::kRepeat && set < options.max_epochs.size();
  return repeats ? options.max_epochs[set] : 0;
}

// The options of steps that end after so many samples, or with a mixture. Throws Error (kInvalid)
// when that is no whole step.
StepOptions ending_after(std::uint64_t samples, StepOptions steps);
StepOptions ending_with(const StagedMixture& mixture, StepOptions steps);

}  // namespace evenkeel
