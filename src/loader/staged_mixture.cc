#include "loader/staged_mixture.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

constexpr std::array<std::pair<std::string_view, Exhausted>, 3> kExhaustedNames = {{
    {"stop", Exhausted::kStop},
    {"drop", Exhausted::kDrop},
    {"repeat", Exhausted::kRepeat},
}};

Error wrong_mixture(const std::string& what) { return Error(ErrorKind::kInvalid, "mixture", what); }

void require_weights(const std::string& where, std::size_t weights, std::size_t sets) {
  if (weights == sets) return;
  throw wrong_mixture(where + std::to_string(weights) + " numbers for " + std::to_string(sets) +
                      " sets")
      .hint("give one for each set, in their order");
}

std::uint64_t first_sample(const MixtureStage& stage, std::uint64_t step_samples) {
  const auto first = checked_mul(stage.step, step_samples);
  if (first && *first < std::uint64_t{1} << 63) return *first;
  throw wrong_mixture("a stage at step " + with_commas(stage.step) +
                      " begins after more samples than 63 bits count; a step takes " +
                      with_commas(step_samples));
}

std::string share_list(const Mixture& mixture) {
  std::string text;
  for (const std::uint64_t share : mixture.shares()) {
    text += (text.empty() ? "" : "+") + std::to_string(share);
  }
  return text;
}

}  // namespace

Exhausted parse_exhausted(std::string_view name) {
  for (const auto& [text, exhausted] : kExhaustedNames) {
    if (text == name) return exhausted;
  }
  throw wrong_mixture("\"" + std::string(name) + "\" is not a way to handle an exhausted set")
      .hint("use stop, drop or repeat");
}

std::string_view exhausted_name(Exhausted exhausted) {
  return kExhaustedNames[static_cast<std::size_t>(exhausted)].first;
}

StagedMixture::StagedMixture(const std::vector<Set>& sets, const MixtureOptions& options,
                             std::uint64_t step_samples, std::uint64_t turn)
    : turn_(turn) {
  if (sets.size() == 1 && !(options.stages.empty() && options.max_epochs.empty())) {
    throw wrong_mixture("stages and max_epochs are for several sets; got one")
        .hint("to end after some epochs of one set, use the option epochs");
  }
  add_stages(sets, options, step_samples);
  parts_.front().before.assign(sets.size(), 0);
  if (std::ranges::any_of(options.max_epochs, [](std::uint64_t most) { return most > 0; })) {
    add_limits(sets, options);
  }
  enter(0);
}

void StagedMixture::add_stages(const std::vector<Set>& sets, const MixtureOptions& options,
                               std::uint64_t step_samples) {
  MixtureStage own;
  for (const Set& set : sets) own.weights.push_back(set.weight);
  const std::vector<MixtureStage>& stages = options.stages;
  std::size_t stage_number = stages.empty() || stages.front().step > 0 ? 1 : 0;
  const auto add = [&](const MixtureStage& stage) {
    const std::string where = "the stage at step " + with_commas(stage.step) + ": ";
    const std::uint64_t first = first_sample(stage, step_samples);
    const std::uint64_t first_draw = divide_up(first, turn_);
    Part part{first_draw, stage_number++, Mixture(stage.weights, where)};
    // Turns of many steps: the stage before would begin with the same turn, and has none.
    if (!parts_.empty() && parts_.back().first == first_draw) {
      parts_.pop_back();
      weights_.pop_back();
    }
    parts_.push_back(std::move(part));
    weights_.push_back(stage.weights);
  };
  if (stage_number > 0) {
    parts_.push_back({0, 0, Mixture(own.weights)});
    weights_.push_back(own.weights);
  } else if (own.weights != stages.front().weights &&
             std::ranges::any_of(own.weights, [](double weight) { return weight != 1; })) {
    throw wrong_mixture("the weights of the sets differ from those of the stage at step 0")
        .hint("leave out the weights of the sets, or the stage at step 0");
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::string where = "the stage at step " + with_commas(stages[i].step) + " has ";
    require_weights(where, stages[i].weights.size(), sets.size());
    if (i > 0 && stages[i].step <= stages[i - 1].step) {
      throw wrong_mixture("stages must be in the order of their steps; step " +
                          with_commas(stages[i].step) + " comes after step " +
                          with_commas(stages[i - 1].step));
    }
    add(stages[i]);
  }
}

void StagedMixture::add_limits(const std::vector<Set>& sets, const MixtureOptions& options) {
  require_weights("max_epochs has ", options.max_epochs.size(), sets.size());
  for (std::size_t set = 0; set < sets.size(); ++set) {
    const std::uint64_t epochs = options.max_epochs[set];
    if (epochs > 0 && sets[set].epoch_samples == 0) {
      throw wrong_mixture("order \"random\" has no epochs, so max_epochs cannot limit them")
          .hint("use order \"shuffled\", or leave out max_epochs");
    }
    // A limit that overflows 64 bits is no limit.
    const auto samples = checked_mul(epochs, sets[set].epoch_samples);
    if (samples && epochs > 0 && *samples < turn_) {
      throw wrong_mixture("set " + std::to_string(set) + " has " + with_commas(*samples) +
                          " samples in its max_epochs, and a mixture in order \"blocks\" takes " +
                          with_commas(turn_) + " of a set at a time, one for each stream")
          .hint("use fewer streams, or more epochs");
    }
    most_.push_back(samples.value_or(0) / turn_);
  }
  limit_parts(options);
}

void StagedMixture::limit_parts(const MixtureOptions& options) {
  std::vector<bool> limited(most_.size());
  for (std::size_t set = 0; set < most_.size(); ++set) limited[set] = most_[set] > 0;
  for (std::size_t part = 0; part < parts_.size();) {
    const auto first = first_exhausted(part, limited);
    if (!first) {
      ++part;
      continue;
    }
    const auto [set, position] = *first;
    limited[set] = false;
    switch (options.exhausted) {
      case Exhausted::kStop:
        end_at(position, position == parts_[part].first ? part : part + 1);
        break;
      case Exhausted::kDrop:
        drop(part, set, position);
        break;
      case Exhausted::kRepeat:
        repeats_.push_back({position, set, most_[set]});
        break;
    }
  }
}

void StagedMixture::end_at(std::uint64_t position, std::size_t parts) {
  end_ = position;
  parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(parts), parts_.end());
  weights_.resize(parts);
}

void StagedMixture::drop(std::size_t part, std::size_t set, std::uint64_t position) {
  if (position == parts_[part].first) {
    // The set was already exhausted when the part began.
    weights_[part][set] = 0;
  } else {
    const auto behind = static_cast<std::ptrdiff_t>(part) + 1;
    std::vector<double> weights = weights_[part];
    weights[set] = 0;
    weights_.insert(weights_.begin() + behind, std::move(weights));
    parts_.insert(parts_.begin() + behind, {position, parts_[part].stage, parts_[part].mixture});
    ++part;
  }
  for (std::size_t i = part; i < parts_.size(); ++i) {
    weights_[i][set] = 0;
    if (std::ranges::all_of(weights_[i], [](double weight) { return weight == 0; })) {
      return end_at(parts_[i].first, i);
    }
    parts_[i].mixture = Mixture(weights_[i]);
  }
}

std::uint64_t StagedMixture::end_of(std::size_t part) const {
  return part + 1 < parts_.size() ? parts_[part + 1].first : end_.value_or(kNever);
}

std::optional<StagedMixture::Exhaustion> StagedMixture::first_exhausted(
    std::size_t part, const std::vector<bool>& limited) {
  know(part);
  const Part& here = parts_[part];
  Mixture walked = here.mixture;
  // What a set has left: whole periods, and draws in the period after them.
  struct Left {
    std::uint64_t periods = 0, draws = 0;
    bool sought = false;
  };
  std::vector<Left> left(most_.size());
  std::size_t sought = 0;
  for (std::size_t set = 0; set < most_.size(); ++set) {
    const std::uint64_t share = walked.shares()[set];
    if (!limited[set] || share == 0) continue;
    const std::uint64_t draws = most_[set] - std::min(most_[set], here.before[set]);
    left[set] = {draws / share, draws % share, true};
    ++sought;
  }
  std::optional<Exhaustion> first;
  walked.seek(0);
  while (sought > 0) {
    const std::uint64_t within = walked.position();
    const std::size_t set = walked.next().set;
    if (!left[set].sought || left[set].draws-- > 0) continue;
    left[set].sought = false;
    --sought;
    const auto periods = checked_mul(left[set].periods, walked.period());
    const auto from_first = periods ? checked_add(*periods, within) : std::nullopt;
    const auto at = from_first ? checked_add(here.first, *from_first) : std::nullopt;
    // More samples than 64 bits count are never reached.
    if (!at || !checked_mul(*at, turn_)) continue;
    if (*at < end_of(part) && (!first || *at < first->position)) first = {set, *at};
  }
  return first;
}

void StagedMixture::know(std::size_t part) {
  for (; known_ < part; ++known_) {
    const Part& now = parts_[known_];
    Part& after = parts_[known_ + 1];
    Mixture walked = now.mixture;
    walked.seek(after.first - now.first);
    after.before.resize(now.before.size());
    for (std::size_t set = 0; set < now.before.size(); ++set) {
      after.before[set] = now.before[set] + walked.before(set);
    }
  }
}

void StagedMixture::enter(std::size_t part) {
  know(part);
  part_ = part;
  part_end_ = end_of(part);
}

StagedMixture::Draw StagedMixture::next() {
  if (parts_[part_].first + parts_[part_].mixture.position() >= part_end_) {
    if (part_ + 1 == parts_.size()) {
      throw wrong_mixture("the mixture ends after " + with_commas(part_end_ * turn_) +
                          " samples, because its sets have had their max_epochs");
    }
    seek(part_end_);
  }
  Part& part = parts_[part_];
  const Mixture::Draw draw = part.mixture.next();
  const std::uint64_t taken = part.before[draw.set] + draw.index;
  Draw result{draw.set, taken, part.stage, taken};
  if (!repeats_.empty() && most_[draw.set] > 0) result.index %= most_[draw.set];
  return result;
}

void StagedMixture::seek(std::uint64_t position) {
  const auto behind = std::ranges::upper_bound(parts_, position, {}, &Part::first);
  const auto part = static_cast<std::size_t>(behind - parts_.begin()) - 1;
  if (part != part_) enter(part);
  parts_[part].mixture.seek(position - parts_[part].first);
}

bool StagedMixture::plain_before(std::uint64_t samples) const {
  return (parts_.size() == 1 || parts_[1].first * turn_ >= samples) &&
         (repeats_.empty() || repeats_.front().first * turn_ >= samples);
}

std::string StagedMixture::describe(std::uint64_t samples) const {
  if (plain_before(samples)) return {};
  std::string text;
  for (const Part& part : parts_) {
    if (part.first * turn_ >= samples) break;
    text += (text.empty() ? "stages=" : ",") + std::to_string(part.first * turn_) + ":" +
            share_list(part.mixture);
  }
  for (const Repeat& repeat : repeats_) {
    if (repeat.first * turn_ >= samples) break;
    text += ",repeat" + std::to_string(repeat.set) + "@" + std::to_string(repeat.first * turn_) +
            ":" + std::to_string(repeat.draws * turn_);
  }
  return text + " ";
}

std::string StagedMixture::describe_share(std::size_t set, std::uint64_t samples) const {
  const Mixture& first = parts_.front().mixture;
  if (first.shares().size() == 1 || !plain_before(samples)) return {};
  return "share=" + std::to_string(first.shares()[set]) + "/" + std::to_string(first.period()) +
         " ";
}

StepOptions ending_after(std::uint64_t samples, StepOptions steps, const std::string& more) {
  const std::uint64_t of_step = steps.batch_size * steps.world;
  const std::uint64_t most = samples / of_step;
  if (most == 0) {
    throw Error(ErrorKind::kInvalid, "loader",
                "there are " + with_commas(samples) +
                    " samples, less than one step of world x batch_size = " + with_commas(of_step))
        .hint("take a smaller batch_size, or " + more);
  }
  steps.steps = steps.steps == 0 ? most : std::min(steps.steps, most);
  return steps;
}

StepOptions ending_with(const StagedMixture& mixture, StepOptions steps) {
  return mixture.end() ? ending_after(*mixture.end(), steps, "larger max_epochs") : steps;
}

}  // namespace evenkeel
