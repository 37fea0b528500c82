// labels: threads reads
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "format/token_test_files.h"
#include "tokens/loader.h"
#include "tokens/test_loader.h"

namespace evenkeel {
namespace {

class TokenLoaderState : public TokenLoaderTest {};

TEST_F(TokenLoaderState, ResumesWithAnotherWorldAndDepth) {
  const Tokens stream = tokens(20'000);
  const LoaderOptions options{
      .batch_size = 8, .block_size = 64, .order = CropOrder::kCovering, .seed = 77};
  TokenLoader whole(stream, options);
  for (int i = 0; i < 57; ++i) whole.next();
  const LoaderState state = LoaderState::parse(whole.state().text());
  std::map<std::int64_t, std::vector<std::int64_t>> expected;  // by first token
  for (int i = 0; i < 3; ++i) {
    const auto rows = whole.next()->x<std::int64_t>();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      expected[rows[r][0]] = {rows[r].begin(), rows[r].end()};
    }
  }
  std::size_t found = 0;
  for (std::uint64_t rank = 0; rank < 4; ++rank) {
    LoaderOptions split = options;
    split.batch_size = 2;
    split.rank = rank;
    split.world = 4;
    split.prefetch = static_cast<std::uint32_t>(rank);
    TokenLoader part(stream, split);
    part.load(state);
    EXPECT_EQ(part.step(), 57u);
    for (int i = 0; i < 3; ++i) {
      const auto rows = part.next()->x<std::int64_t>();
      for (std::size_t r = 0; r < rows.size(); ++r, ++found) {
        const auto at = expected.find(rows[r][0]);
        ASSERT_NE(at, expected.end());
        EXPECT_TRUE(std::ranges::equal(at->second, rows[r]));
      }
    }
  }
  EXPECT_EQ(found, 24u);
}

TEST_F(TokenLoaderState, SeekingBackAndForthGivesTheSameBatches) {
  const Tokens stream = tokens(20'000);
  TokenLoader loader(stream, {.batch_size = 4, .block_size = 16, .seed = 5});
  std::vector<std::vector<std::int64_t>> first;
  for (int i = 0; i < 20; ++i) first.push_back(values(loader.next()->x<std::int64_t>()));
  for (const std::uint64_t step : {19, 0, 7, 8, 3}) {
    loader.seek(step);
    const Batch& batch = *loader.next();
    EXPECT_EQ(batch.step(), step);
    EXPECT_EQ(values(batch.x<std::int64_t>()), first[step]);
  }
}

TEST_F(TokenLoaderState, StateOfOtherDataIsRefusedAndTheDifferenceNamed) {
  TokenLoader loader(tokens(1000), {.batch_size = 2, .block_size = 8, .seed = 1});
  const LoaderState state = loader.state();
  const auto complaint = [&](LoaderOptions options, std::uint64_t count) -> std::string {
    TokenLoader other(tokens(count), options);
    try {
      other.load(state);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(complaint({.batch_size = 2, .block_size = 8, .seed = 1}, 1000), "accepted");
  EXPECT_NE(complaint({.batch_size = 2, .block_size = 8, .seed = 1}, 1001).find("tokens=1001"),
            std::string::npos);
  EXPECT_NE(complaint({.batch_size = 2, .block_size = 8, .seed = 2}, 1000).find("seed is 1"),
            std::string::npos);
  EXPECT_NE(complaint({.batch_size = 2, .block_size = 9, .seed = 1}, 1000).find("block_size is 8"),
            std::string::npos);
  EXPECT_NE(
      complaint({.batch_size = 2, .block_size = 8, .order = CropOrder::kShuffled, .seed = 1}, 1000)
          .find("order is random"),
      std::string::npos);
}

// A mixture takes as many samples from a set at a time as there are streams.
TEST_F(TokenLoaderState, AMixtureOfDocumentsSaysWhichStreamsItNeeds) {
  std::vector<std::uint64_t> ends;
  for (std::uint64_t end = 10; end <= 4000; end += 10) ends.push_back(end);
  const std::string path = folder_.write("d.ds", counting(0, ends.back()));
  folder_.write("d.ds.index", le_all<std::uint64_t>(ends));
  const Tokens stream = Tokens::open(path, {.budget = 16_MiB});
  const auto make = [&](std::uint64_t batch_size, std::uint64_t streams) {
    LoaderOptions options{
        .batch_size = batch_size, .block_size = 16, .order = CropOrder::kBlocks, .prefetch = 1};
    options.blocks.streams = streams;
    options.documents = {.mode = DocumentMode::kPacked, .window = 16};
    return TokenLoader({{stream, 1}, {stream, 1}}, options);
  };
  TokenLoader first = make(64, 0);
  first.seek(2);
  const LoaderState state = first.state();
  ASSERT_EQ(state.blocks.streams, 8u);
  TokenLoader other = make(16, 0);
  try {
    other.load(state);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("streams=8"), std::string::npos) << error.what();
  }
  TokenLoader same = make(16, 8);
  same.load(state);
  EXPECT_EQ(same.step(), 8u);
}

TEST_F(TokenLoaderState, StateThatIsNoWholeStepIsRefused) {
  const Tokens stream = tokens(1000);
  TokenLoader loader(stream, {.batch_size = 2, .block_size = 8});
  loader.next();
  TokenLoader wider(stream, {.batch_size = 3, .block_size = 8});
  EXPECT_THROW(wider.load(loader.state()), Error);
}

TEST_F(TokenLoaderState, StateTextIsReadBackAndNonsenseRefused) {
  TokenLoader loader(tokens(1000), {.batch_size = 2, .block_size = 8, .seed = 1});
  loader.next();
  EXPECT_EQ(LoaderState::parse(loader.state().text()), loader.state());
  EXPECT_LT(loader.state().text().size(), 300u);
  for (const char* text : {"", "evenkeel-loader-state 1", "evenkeel-loader-state 2 samples=1",
                           "evenkeel-loader-state 1 samples=-1 seed=0 block_size=1 order=random x",
                           "evenkeel-loader-state 1 samples=1 seed=0 block_size=1 order=x y"}) {
    EXPECT_THROW(LoaderState::parse(text), Error) << text;
  }
}

}  // namespace
}  // namespace evenkeel
