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

// A pure function of the position, except for internal caches. Not thread-safe.
class StagedMixture {
 public:
  struct Set {
    double weight = 1;
    std::uint64_t epoch_samples = 0;  // 0: its order has no epochs
  };
  // A step takes `step_samples`. Throws Error (kInvalid), which names the stage.
  StagedMixture(const std::vector<Set>& sets, const MixtureOptions& options,
                std::uint64_t step_samples);

  struct Draw {
    std::size_t set = 0;
    std::uint64_t index = 0;  // in the order of the set
    std::size_t stage = 0;    // 0 until the second stage begins
  };
  // Throws Error (kInvalid) at the end.
  Draw next();
  void seek(std::uint64_t position);

  // The mixture of the first stage.
  const Mixture& first() const { return parts_.front().mixture; }

  bool changes() const { return weights_.size() > 1 || !most_.empty(); }

  // The number of samples after which the mixture ends, if it ends.
  std::optional<std::uint64_t> end() const { return end_; }

  // Everything that the samples before `position` depend on, as one word and a blank. Empty if they
  // depend on plain weights only. For states: mixtures with the same text drew the same samples.
  std::string describe(std::uint64_t position) const;
  // "share=3/4 " if the samples before `position` depend on plain weights only; otherwise empty.
  std::string describe_share(std::size_t set, std::uint64_t position) const;

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
    std::uint64_t samples = 0;
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
  bool plain_before(std::uint64_t position) const;

  std::vector<Part> parts_;
  std::vector<std::vector<double>> weights_;  // of the parts
  std::size_t known_ = 0;
  std::vector<std::uint64_t> most_;  // samples of each set; 0: no limit; empty: no limits at all
  std::vector<Repeat> repeats_;      // by `first`
  std::optional<std::uint64_t> end_;
  std::size_t part_ = 0;        // the part of the next sample
  std::uint64_t part_end_ = 0;  // its end
};

// Options for steps that end after `samples`, or with a mixture. Throws Error (kInvalid) if that is
// less than a step.
StepOptions ending_after(std::uint64_t samples, StepOptions steps);
StepOptions ending_with(const StagedMixture& mixture, StepOptions steps);

}  // namespace evenkeel
