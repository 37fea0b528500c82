#include "loader/staged_mixture.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/error.h"

namespace evenkeel {
namespace {

using Sets = std::vector<StagedMixture::Set>;
using Draws = std::vector<StagedMixture::Draw>;

Draws drawn(StagedMixture& mixture, std::uint64_t count) {
  Draws draws;
  for (std::uint64_t i = 0; i < count; ++i) draws.push_back(mixture.next());
  return draws;
}

bool same(const StagedMixture::Draw& a, const StagedMixture::Draw& b) {
  return a.set == b.set && a.index == b.index && a.stage == b.stage && a.taken == b.taken;
}

struct AnyMixture {
  Sets sets;
  MixtureOptions options;
};

std::vector<double> any_weights(std::size_t sets) {
  std::vector<double> weights;
  for (std::size_t i = 0; i < sets; ++i) weights.push_back(*rc::gen::inRange(0, 9));
  weights[*rc::gen::inRange<std::size_t>(0, sets)] += 1;
  return weights;
}

AnyMixture any_mixture(bool limits) {
  AnyMixture any;
  any.sets.resize(*rc::gen::inRange<std::size_t>(2, 5));
  for (auto& set : any.sets) set.epoch_samples = *rc::gen::inRange<std::uint64_t>(1, 60);
  std::uint64_t step = *rc::gen::inRange<std::uint64_t>(0, 20);
  for (auto stages = *rc::gen::inRange(1, 6); stages > 0; --stages) {
    any.options.stages.push_back({step, any_weights(any.sets.size())});
    step += *rc::gen::inRange<std::uint64_t>(1, 40);
  }
  if (limits) {
    any.options.exhausted = static_cast<Exhausted>(*rc::gen::inRange(0, 3));
    for (std::size_t i = 0; i < any.sets.size(); ++i) {
      any.options.max_epochs.push_back(*rc::gen::inRange<std::uint64_t>(0, 4));
    }
  }
  return any;
}

// A plain reference that draws one after the other: stages by their definition, and sets that have
// had their epochs as `exhausted` says. A draw is `turn` samples.
Draws reference(const AnyMixture& any, std::uint64_t step_samples, std::uint64_t count,
                std::uint64_t turn = 1) {
  const auto& sets = any.sets;
  const auto& options = any.options;
  std::vector<std::uint64_t> taken(sets.size());
  std::vector<bool> dropped(sets.size());
  std::vector<MixtureStage> stages = options.stages;
  if (stages.front().step > 0) {
    stages.insert(stages.begin(), {0, std::vector<double>(sets.size(), 1)});
  }
  const auto weights_of = [&](std::size_t stage) {
    std::vector<double> weights = stages[stage].weights;
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (dropped[i]) weights[i] = 0;
    }
    return weights;
  };
  const auto nothing = [](const std::vector<double>& weights) {
    return std::accumulate(weights.begin(), weights.end(), 0.0) == 0;
  };
  Draws draws;
  std::size_t stage = 0;
  std::optional<Mixture> mixture(weights_of(0));
  while (draws.size() < count) {
    bool begins = false;
    while (stage + 1 < stages.size() &&
           draws.size() * turn >= stages[stage + 1].step * step_samples) {
      ++stage;
      begins = true;
    }
    if (begins) {
      if (nothing(weights_of(stage))) return draws;
      mixture.emplace(weights_of(stage));
    }
    const std::size_t set = mixture->next().set;
    const std::uint64_t most =
        options.max_epochs.empty() ? 0 : options.max_epochs[set] * sets[set].epoch_samples / turn;
    if (most > 0 && taken[set] >= most && options.exhausted != Exhausted::kRepeat) {
      if (options.exhausted == Exhausted::kStop) return draws;
      dropped[set] = true;
      if (nothing(weights_of(stage))) return draws;
      mixture.emplace(weights_of(stage));
      continue;
    }
    draws.push_back({set, most > 0 ? taken[set] % most : taken[set], stage, taken[set]});
    ++taken[set];
  }
  return draws;
}

RC_GTEST_PROP(StagedMixture, DrawsWhatThePlainReferenceDraws, ()) {
  const AnyMixture any = any_mixture(*rc::gen::arbitrary<bool>());
  const auto step = *rc::gen::inRange<std::uint64_t>(1, 8);
  const Draws expected = reference(any, step, 600);
  StagedMixture mixture(any.sets, any.options, step);
  const std::uint64_t end = mixture.end().value_or(600);
  RC_ASSERT(expected.size() == std::min<std::uint64_t>(end, 600));
  const Draws found = drawn(mixture, expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) RC_ASSERT(same(found[i], expected[i]));
  if (end < 600) RC_ASSERT_THROWS_AS(mixture.next(), Error);
}

// As the order `blocks` takes them: stages may begin within a turn, and several within one.
RC_GTEST_PROP(StagedMixture, TurnsAreDrawnAsThePlainReferenceDrawsThem, ()) {
  AnyMixture any = any_mixture(*rc::gen::arbitrary<bool>());
  const auto step = *rc::gen::inRange<std::uint64_t>(1, 8);
  const auto turn = *rc::gen::inRange<std::uint64_t>(1, 24);
  for (auto& set : any.sets) set.epoch_samples += turn;
  const Draws expected = reference(any, step, 300, turn);
  StagedMixture mixture(any.sets, any.options, step, turn);
  const std::uint64_t end = mixture.end().value_or(300 * turn);
  RC_ASSERT(end % turn == 0u);
  RC_ASSERT(expected.size() == std::min<std::uint64_t>(end / turn, 300));
  std::vector<std::uint64_t> before(any.sets.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    mixture.seek(i);
    for (std::size_t set = 0; set < before.size(); ++set) {
      RC_ASSERT(mixture.before(set) == before[set]);
    }
    RC_ASSERT(mixture.next_set() == expected[i].set);
    RC_ASSERT(same(mixture.next(), expected[i]));
    ++before[expected[i].set];
  }
}

RC_GTEST_PROP(StagedMixture, SeekingIsTheSameAsStepping, ()) {
  const AnyMixture any = any_mixture(*rc::gen::arbitrary<bool>());
  StagedMixture walked(any.sets, any.options, 3), sought(any.sets, any.options, 3);
  const auto count = std::min<std::uint64_t>(walked.end().value_or(400), 400);
  RC_PRE(count > 0u);
  const Draws expected = drawn(walked, count);
  for (int i = 0; i < 20; ++i) {
    const auto position = *rc::gen::inRange<std::uint64_t>(0, count);
    sought.seek(position);
    RC_ASSERT(same(sought.next(), expected[position]));
  }
}

RC_GTEST_PROP(StagedMixture, SharesAreExactAtEveryPrefixOfEachStage, ()) {
  const AnyMixture any = any_mixture(false);
  StagedMixture mixture(any.sets, any.options, 5);
  std::vector<std::uint64_t> all(any.sets.size());
  const std::size_t own = any.options.stages.front().step > 0 ? 1 : 0;
  for (std::size_t i = 0; i < any.options.stages.size(); ++i) {
    const std::vector<double>& weights = any.options.stages[i].weights;
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const std::uint64_t first = any.options.stages[i].step * 5;
    const std::uint64_t end =
        i + 1 < any.options.stages.size() ? any.options.stages[i + 1].step * 5 : first + 500;
    std::vector<double> taken(weights.size());
    if (i == 0) {
      for (const auto& draw : drawn(mixture, first)) RC_ASSERT(draw.index == all[draw.set]++);
    }
    for (std::uint64_t n = 1; n <= end - first; ++n) {
      const StagedMixture::Draw draw = mixture.next();
      RC_ASSERT(draw.stage == i + own);
      RC_ASSERT(draw.index == all[draw.set]++);  // none is lost or repeated at a change
      taken[draw.set] += 1;
      for (std::size_t set = 0; set < taken.size(); ++set) {
        RC_ASSERT(std::abs(taken[set] - weights[set] / sum * static_cast<double>(n)) < 1);
      }
    }
  }
}

// Dropping the first set leaves nothing to a later stage. The second set still ends on its own.
TEST(StagedMixture, ASetEndsAlsoWhenALaterStageIsEmpty) {
  const AnyMixture any = {{{1, 10}, {1, 20}},
                          {.stages = {{0, {1, 1}}, {100, {1, 0}}},
                           .max_epochs = {1, 1},
                           .exhausted = Exhausted::kDrop}};
  StagedMixture mixture(any.sets, any.options, 1);
  EXPECT_EQ(mixture.end(), 30u);
  const Draws found = drawn(mixture, 30), expected = reference(any, 1, 200);
  EXPECT_EQ(std::ranges::count(found, 1u, &StagedMixture::Draw::set), 20);
  EXPECT_TRUE(std::ranges::equal(found, expected, same));
  EXPECT_THROW(mixture.next(), Error);
}

// The last stage would begin with a set that has had its epochs.
TEST(StagedMixture, StopsWhereAStageWouldBegin) {
  StagedMixture mixture({{1, 10}, {1, 20}},
                        {.stages = {{0, {1, 0}}, {10, {0, 1}}, {15, {1, 0}}}, .max_epochs = {1, 0}},
                        1);
  EXPECT_EQ(mixture.end(), 15u);
  EXPECT_EQ(drawn(mixture, 15).back().set, 1u);
  EXPECT_THROW(mixture.next(), Error);
}

TEST(StagedMixture, SeeksFarAcrossManyStages) {
  MixtureOptions options;
  for (std::uint64_t i = 0; i < 100; ++i) {
    options.stages.push_back({i * 1'000'000'000, {1.0 + double(i), 3}});
  }
  StagedMixture mixture(Sets(2), options, 1024);
  const std::uint64_t last = 99 * 1'000'000'000ull * 1024;
  mixture.seek(last - 1);
  std::vector<std::uint64_t> next(2);
  const auto before = mixture.next();
  EXPECT_EQ(before.stage, 98u);
  next[before.set] = before.index + 1;
  next[1 - before.set] = last - next[before.set];  // all other samples so far
  for (int i = 0; i < 10; ++i) {
    const auto draw = mixture.next();
    EXPECT_EQ(draw.stage, 99u);
    EXPECT_EQ(draw.index, next[draw.set]++);
  }
}

TEST(StagedMixture, TheTextSaysWhatWasDrawnAndNoMore) {
  const Sets sets(2);
  const StagedMixture plain({{3, 0}, {1, 0}}, {}, 10);
  const StagedMixture staged(sets, {.stages = {{0, {3, 1}}, {5, {1, 3}}}}, 10);
  const StagedMixture longer(sets, {.stages = {{0, {3, 1}}, {5, {1, 3}}, {9, {1, 1}}}}, 10);
  const StagedMixture other(sets, {.stages = {{0, {3, 1}}, {4, {1, 3}}}}, 10);
  EXPECT_EQ(plain.describe(1000), "");
  EXPECT_EQ(plain.describe_share(1, 1000), "share=1/4 ");
  EXPECT_EQ(staged.describe(50), "");
  EXPECT_EQ(staged.describe_share(1, 50), "share=1/4 ");
  EXPECT_EQ(staged.describe(60), "stages=0:3+1,50:1+3 ");
  EXPECT_EQ(staged.describe_share(1, 60), "");
  EXPECT_EQ(longer.describe(90), staged.describe(90));
  EXPECT_NE(longer.describe(100), staged.describe(100));
  EXPECT_EQ(other.describe(40), staged.describe(40));
  EXPECT_NE(other.describe(50), staged.describe(50));
}

TEST(StagedMixture, TheTextNamesSetsThatRepeatOrAreDropped) {
  const Sets sets = {{1, 10}, {1, 1000}};
  const auto text = [&](Exhausted exhausted, std::vector<std::uint64_t> most, std::uint64_t at) {
    return StagedMixture(sets, {.max_epochs = std::move(most), .exhausted = exhausted}, 4)
        .describe(at);
  };
  EXPECT_EQ(text(Exhausted::kRepeat, {2, 0}, 40), "");
  EXPECT_EQ(text(Exhausted::kRepeat, {2, 0}, 60), "stages=0:1+1,repeat0@40:20 ");
  EXPECT_EQ(text(Exhausted::kDrop, {2, 0}, 60), "stages=0:1+1,40:0+1 ");
  EXPECT_EQ(text(Exhausted::kDrop, {3, 0}, 60), "");
  EXPECT_EQ(text(Exhausted::kStop, {2, 0}, 40), "");
}

TEST(StagedMixture, TheTextCountsSamplesAlsoWithTurns) {
  const StagedMixture staged(Sets(2), {.stages = {{0, {3, 1}}, {5, {1, 3}}}}, 10, 16);
  EXPECT_EQ(staged.describe(64), "");  // the stage begins with the first turn after sample 50
  EXPECT_EQ(staged.describe(65), "stages=0:3+1,64:1+3 ");
  const StagedMixture repeated({{1, 40}, {1, 1000}},
                               {.max_epochs = {2, 0}, .exhausted = Exhausted::kRepeat}, 4, 16);
  EXPECT_EQ(repeated.describe(160), "");
  EXPECT_EQ(repeated.describe(161), "stages=0:1+1,repeat0@160:80 ");
}

TEST(StagedMixture, ASetNeedsATurn) {
  const Sets sets = {{1, 10}, {1, 1000}};
  EXPECT_NO_THROW(StagedMixture(sets, {.max_epochs = {2, 0}}, 4, 20));
  EXPECT_THROW(StagedMixture(sets, {.max_epochs = {2, 0}}, 4, 21), Error);
}

// The turn in which the first set would end can be counted in 64 bits, its samples cannot.
TEST(StagedMixture, ALimitThatIsNeverReachedIsNone) {
  const Sets sets = {{1, 960}, {999, 960}};
  for (const Exhausted exhausted : {Exhausted::kStop, Exhausted::kDrop, Exhausted::kRepeat}) {
    const MixtureOptions options{.max_epochs = {1'000'000'000'000'000, 0}, .exhausted = exhausted};
    const StagedMixture mixture(sets, options, 64, 64);
    EXPECT_EQ(mixture.end(), std::nullopt);
    EXPECT_EQ(mixture.describe(1'000'000'000'000'000'000), "");
  }
}

TEST(StagedMixture, StepsEndBeforeTheFirstThatNeedsMore) {
  const StepOptions steps{.batch_size = 3, .world = 2};
  const Sets sets = {{1, 10}, {1, 1000}};
  const StagedMixture mixture(sets, {.max_epochs = {2, 0}}, 6);
  EXPECT_EQ(mixture.end(), 40u);
  EXPECT_EQ(ending_with(mixture, steps).steps, 6u);
  EXPECT_EQ(ending_with(StagedMixture(sets, {}, 6), steps).steps, 0u);
  StepOptions fewer = steps;
  fewer.steps = 2;
  EXPECT_EQ(ending_with(mixture, fewer).steps, 2u);
  StepOptions larger = steps;
  larger.batch_size = 30;
  try {
    ending_with(mixture, larger);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.hint_text(), "take a smaller batch_size, or larger max_epochs");
  }
}

TEST(StagedMixture, BadOptionsAreRefused) {
  const Sets sets = {{1, 10}, {1, 10}};
  const auto stages = [](std::vector<MixtureStage> of) {
    MixtureOptions options;
    options.stages = std::move(of);
    return options;
  };
  for (const MixtureOptions& options :
       {stages({{0, {1}}}), stages({{0, {1, 1}}, {0, {1, 2}}}), stages({{5, {1, 1}}, {4, {1, 2}}}),
        stages({{0, {1, -1}}}), stages({{0, {0, 0}}}), stages({{std::uint64_t{1} << 62, {1, 2}}}),
        MixtureOptions{.max_epochs = {1}}}) {
    EXPECT_THROW(StagedMixture(sets, options, 4), Error);
  }
  EXPECT_THROW(StagedMixture({{1, 0}, {1, 0}}, {.max_epochs = {1, 0}}, 4), Error);  // random
  EXPECT_THROW(StagedMixture({{1, 10}}, stages({{0, {1}}}), 4), Error);
  EXPECT_THROW(StagedMixture({{3, 10}, {1, 10}}, stages({{0, {1, 1}}}), 4), Error);
  EXPECT_NO_THROW(StagedMixture({{3, 10}, {1, 10}}, stages({{0, {3, 1}}}), 4));
  EXPECT_THROW(parse_exhausted("ends"), Error);
  EXPECT_EQ(exhausted_name(parse_exhausted("drop")), "drop");
}

}  // namespace
}  // namespace evenkeel
