// labels: reads
#include "tokens/megatron_samples.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "format/token_test_files.h"
#include "tokens/megatron_blend.h"

namespace evenkeel {
namespace {

// FNV-1a of 64-bit numbers.
class Hash {
 public:
  void add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i) value_ = (value_ ^ (number >> 8 * i & 255)) * 0x100000001b3;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

class MegatronOrderTest : public TokenFileTest {
 protected:
  // The documents of the golden vectors; some are empty.
  Tokens golden(const std::string& name, std::int64_t count, std::int64_t factor,
                const Budget& budget = Budget(16_MiB)) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t i = 0; i < count; ++i) {
      lengths.push_back(i % 17 == 5 ? 0 : 1 + (i * i * 7919 + 13 * i * factor) % 50);
    }
    const auto all = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    write(name + ".bin", evenkeel::counting<std::uint16_t>(0, static_cast<std::uint64_t>(all)));
    return Tokens::open(write(name + ".idx", MegatronIndex::of(lengths).bytes()),
                        {.budget = budget});
  }
  std::vector<WeightedTokens> golden_sets(const std::vector<double>& weights = {1, 1, 1}) {
    return {{golden("a", 300, 1), weights[0]},
            {golden("b", 100, 2), weights[1]},
            {golden("c", 40, 3), weights[2]}};
  }
};

// Hashes of the index arrays of megatron-core 0.16.1 for the same documents.
TEST_F(MegatronOrderTest, SamplesAreThoseOfMegatronCore) {
  struct Golden {
    std::uint32_t seed;
    std::uint64_t block_size, samples, size, documents, places, shuffled;
  };
  const Tokens tokens = golden("a", 300, 1);
  for (const Golden& is : {
           Golden{1234, 16, 0, 335, 16893555867699154541u, 7401148765036950687u,
                  15713559970432673401u},
           {1234, 16, 100, 335, 16893555867699154541u, 7401148765036950687u, 15713559970432673401u},
           {1, 16, 1000, 1007, 8755414662233572033u, 12276318259687039440u, 10136558618347565703u},
           {7, 5, 2000, 2149, 12841881416854437253u, 6077069121263884300u, 6989689188601180137u},
           {7, 128, 150, 167, 13679858484210685613u, 8245436227688597298u, 7391958163077270818u},
           {4294967295, 64, 190, 251, 9084148184323249273u, 5580891125232815086u,
            7158660511565197502u},
           {3, 16, 880, 1007, 14986504903527380213u, 2257138029459485749u, 18205278312280040727u},
       }) {
    const MegatronSamples samples(tokens, is.block_size, is.samples, is.seed);
    ASSERT_EQ(samples.size(), is.size);
    Hash documents, places, shuffled;
    for (const std::uint32_t document : samples.document_order()) documents.add(document);
    for (std::uint64_t i = 0; i <= samples.size(); ++i) {
      const MegatronSamples::Place place = samples.place(i);
      places.add(place.entry);
      places.add(place.offset);
    }
    for (std::uint64_t i = 0; i < samples.size(); ++i) shuffled.add(samples[i]);
    EXPECT_EQ(documents.value(), is.documents);
    EXPECT_EQ(places.value(), is.places);
    EXPECT_EQ(shuffled.value(), is.shuffled);
  }
}

TEST_F(MegatronOrderTest, BlendsAreThoseOfMegatronCore) {
  struct Golden {
    std::vector<double> weights;  // empty: by size
    std::uint64_t samples, size, sets, indexes;
  };
  for (const Golden& is : {
           Golden{{3, 1, 2}, 500, 501, 3629333455857612167u, 12352364847624425219u},
           {{0.7, 0.2, 0.1}, 3000, 3002, 3472185118517612996u, 9145499494508131727u},
           {{}, 0, 544, 10786105372968858052u, 8331542043655139697u},
           {{}, 200, 200, 11127241441114026020u, 8406517364121399780u},
       }) {
    const bool by_size = is.weights.empty();
    const MegatronDataset data(golden_sets(by_size ? std::vector<double>{1, 1, 1} : is.weights), 16,
                               {.samples = is.samples, .by_size = by_size}, 1234);
    ASSERT_EQ(data.size(), is.size);
    MegatronBlend::Cursor cursor(*data.blend());
    Hash sets, indexes;
    for (std::uint64_t i = 0; i < data.size(); ++i) {
      const MegatronBlend::Draw draw = cursor.at(i);
      sets.add(draw.set);
      indexes.add(draw.index);
    }
    EXPECT_EQ(sets.value(), is.sets);
    EXPECT_EQ(indexes.value(), is.indexes);
  }
}

TEST_F(MegatronOrderTest, SplitsAreThoseOfMegatronCore) {
  const Tokens tokens = golden("a", 300, 1);
  const MegatronDocuments documents(tokens);
  using Part = std::pair<std::uint64_t, std::uint64_t>;  // documents, samples of 16 tokens
  const std::map<std::string, std::vector<Part>> expected = {
      {"969,30,1", {{291, 327}, {9, 8}, {0, 0}}},          {"99,1", {{297, 333}, {3, 2}, {0, 0}}},
      {"0.5,0.25,0.25", {{150, 167}, {75, 86}, {75, 81}}}, {"1", {{300, 335}, {0, 0}, {0, 0}}},
      {"8,0,1", {{267, 299}, {0, 0}, {33, 36}}},
  };
  for (const auto& [split, parts] : expected) {
    const auto found = megatron_split(tokens, split);
    ASSERT_EQ(found.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(found[i].has_value(), parts[i].first > 0) << split;
      if (!found[i]) continue;
      EXPECT_EQ(MegatronDocuments(*found[i]).size(), parts[i].first) << split;
      EXPECT_EQ(MegatronSamples(*found[i], 16, 0, 1234).size(), parts[i].second) << split;
    }
  }
  for (const char* const split : {"", "a,b", "1,2,3,4", "0,0,0", "1..2"}) {
    EXPECT_THROW(megatron_split(tokens, split), Error) << split;
  }
}

TEST_F(MegatronOrderTest, ABlendIsTheSameFromEveryPosition) {
  const MegatronBlend blend({5, 3, 1}, 20'000, {}, Budget(1_MiB));
  MegatronBlend::Cursor walked(blend);
  std::vector<MegatronBlend::Draw> draws;
  std::vector<std::uint64_t> next(3);
  for (std::uint64_t i = 0; i < blend.size(); ++i) {
    draws.push_back(walked.at(i));
    EXPECT_EQ(draws.back().index, next[draws.back().set]++);
  }
  MegatronBlend::Cursor sought(blend);
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::uint64_t position = i * 7919 % blend.size();
    const MegatronBlend::Draw draw = sought.at(position);
    EXPECT_EQ(draw.set, draws[position].set);
    EXPECT_EQ(draw.index, draws[position].index);
  }
}

// Compares every batch with its definition, the runs of its samples, token by token.
TEST_F(MegatronOrderTest, BatchesHoldTheRunsOfTheirSamples) {
  const std::vector<WeightedTokens> sets = golden_sets({3, 1, 2});
  const LoaderOptions options{.batch_size = 4,
                              .block_size = 16,
                              .order = CropOrder::kMegatron,
                              .seed = 1234,
                              .megatron = {.samples = 500}};
  TokenLoader loader(sets, options);
  const MegatronDataset data(sets, 16, {.samples = 500}, 1234);
  MegatronOrder order(std::make_shared<MegatronDataset>(sets, 16, options.megatron, 1234));
  EXPECT_EQ(loader.size(), 501 / 4);
  for (std::uint64_t step = 0; step < loader.size(); ++step) {
    if (step == 20) loader.seek(step = 100);
    const Batch& batch = *loader.next();
    const auto origins = loader.explain(step);
    for (std::uint64_t row = 0; row < 4; ++row) {
      const auto [set, number] = data.sample(order.at(step * 4 + row).row);
      std::vector<std::int64_t> tokens;
      data.set(set).for_each_run(number, [&](std::uint64_t start, std::uint64_t count) {
        if (tokens.empty()) {
          EXPECT_EQ(origins[row].start, start);
        }
        for (std::uint64_t i = 0; i < count; ++i) {
          tokens.push_back(static_cast<std::int64_t>(start + i));
        }
      });
      ASSERT_EQ(tokens.size(), 17u);
      EXPECT_EQ(origins[row].set, set);
      const auto x = batch.x<std::int64_t>()[row], y = batch.y<std::int64_t>()[row];
      EXPECT_TRUE(std::equal(x.begin(), x.end(), tokens.begin()));
      EXPECT_TRUE(std::equal(y.begin(), y.end(), tokens.begin() + 1));
    }
  }
}

TEST_F(MegatronOrderTest, RanksTakeTheirPartOfEachStep) {
  const Tokens tokens = golden("a", 300, 1);
  LoaderOptions options{
      .batch_size = 6, .block_size = 16, .order = CropOrder::kMegatron, .steps = 30};
  TokenLoader whole(tokens, options);
  options.batch_size = 2;
  options.world = 3;
  for (std::uint64_t rank = 0; rank < 3; ++rank) {
    options.rank = rank;
    TokenLoader part(tokens, options);
    EXPECT_EQ(part.size(), 30u);
    part.load(whole.state());  // a state with the same number of samples
    for (std::uint64_t step = 0; step < 30; ++step) {
      const auto all = whole.explain(step), mine = part.explain(step);
      EXPECT_EQ(mine[0].start, all[2 * rank].start);
      EXPECT_EQ(mine[1].start, all[2 * rank + 1].start);
    }
  }
  options.steps = 29;
  EXPECT_THROW(TokenLoader(tokens, options).load(whole.state()), Error);  // another order
}

TEST_F(MegatronOrderTest, TheIndexIsPartOfTheBudget) {
  const Tokens tokens = golden("a", 300, 1, Budget(16_MiB));
  const std::uint64_t before = tokens.budget().in_use();
  {
    const MegatronSamples samples(tokens, 16, 10'000, 1);
    EXPECT_GE(tokens.budget().in_use() - before, 4 * (samples.size() + 300 * samples.epochs()));
  }
  EXPECT_EQ(tokens.budget().in_use(), before);
  EXPECT_THROW(MegatronSamples(tokens, 16, 10'000'000, 1), Error);
}

TEST_F(MegatronOrderTest, BadOptionsAreRefused) {
  const Tokens tokens = golden("a", 300, 1);
  const LoaderOptions good{.batch_size = 4, .block_size = 16, .order = CropOrder::kMegatron};
  EXPECT_NO_THROW(TokenLoader(tokens, good));
  const auto refused = [](const auto& of, const LoaderOptions& options) {
    EXPECT_THROW(TokenLoader(of, options), Error);
  };
  LoaderOptions options = good;
  options.epochs = 1;
  refused(tokens, options);
  options = good;
  options.seed = std::uint64_t{1} << 32;
  refused(tokens, options);
  options = good;
  options.block_size = 1'000'000;
  refused(tokens, options);
  options = good;
  options.batch_size = 400;  // more than all samples
  try {
    const TokenLoader loader(tokens, options);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.hint_text(), "take a smaller batch_size, or more samples");
  }
  const std::vector<WeightedTokens> sets = golden_sets();
  refused(sets, good);  // weights without a number of samples
  options = good;
  options.megatron.samples = 100;
  options.mixture.max_epochs = {1, 1, 1};
  refused(sets, options);
  EXPECT_NO_THROW(TokenLoader(tokens.slice(1), good));  // the first document has one token
  refused(tokens.slice(2), good);                       // inside the second document
  refused(
      Tokens::open(write("raw.bin", evenkeel::counting<std::uint16_t>(0, 1000)), {.budget = 1_MiB}),
      good);
}

}  // namespace
}  // namespace evenkeel
