// labels: threads reads
#include <gtest/gtest.h>

#include "tokens/loader.h"
#include "tokens/test_loader.h"

namespace evenkeel {
namespace {

class TokensXy : public TokenLoaderTest {};

TEST_F(TokensXy, XyIsWhatSlicingGives) {
  for (const EngineKind engine :
       {EngineKind::kDirect, EngineKind::kAuto, EngineKind::kRead, EngineKind::kMap}) {
    const Tokens stream = tokens(200'000, engine);
    ASSERT_EQ(stream.size(), 200'000u);
    const std::vector<std::uint64_t> starts = {0, 5, 199'899, 70'001, 5};
    std::vector<std::int64_t> x(starts.size() * 100), y(x.size());
    stream.xy(starts, 100, std::span(x), std::span(y));
    for (std::size_t i = 0; i < starts.size(); ++i) {
      expect_crop(std::span(x).subspan(i * 100, 100), std::span(y).subspan(i * 100, 100),
                  starts[i]);
    }
  }
}

TEST_F(TokensXy, XyTakesBlocksLongerThanItsBuffers) {
  const Tokens stream = tokens(1'000'000);
  const std::vector<std::uint64_t> starts = {1, 99'998};
  std::vector<std::int64_t> x(starts.size() * 900'001), y(x.size());
  stream.xy(starts, 900'001, std::span(x), std::span(y));
  for (std::size_t i = 0; i < starts.size(); ++i) {
    expect_crop(std::span(x).subspan(i * 900'001, 900'001),
                std::span(y).subspan(i * 900'001, 900'001), starts[i]);
  }
}

TEST_F(TokensXy, CropsCrossShards) {
  const Tokens stream = shards({100, 3, 1, 500, 7, 90});
  ASSERT_EQ(stream.size(), 701u);
  std::vector<std::uint64_t> starts;
  for (std::uint64_t i = 0; i < 701 - 20; ++i) starts.push_back(i);
  std::vector<std::int64_t> x(starts.size() * 20), y(x.size());
  stream.xy(starts, 20, std::span(x), std::span(y));
  for (std::size_t i = 0; i < starts.size(); ++i) {
    expect_crop(std::span(x).subspan(i * 20, 20), std::span(y).subspan(i * 20, 20), starts[i]);
  }
}

TEST_F(TokensXy, XyOutsideTheStreamIsRefusedWithTheNumbers) {
  const Tokens stream = tokens(1000);
  std::vector<std::int64_t> x(100), y(100);
  try {
    stream.xy(std::vector<std::uint64_t>{900}, 100, std::span(x), std::span(y));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIndex);
    EXPECT_NE(std::string(error.what()).find("0 to 899"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(stream.xy(std::vector<std::uint64_t>{899}, 100, std::span(x), std::span(y)));
  x.resize(99);
  EXPECT_THROW(stream.xy(std::vector<std::uint64_t>{0}, 100, std::span(x), std::span(y)), Error);
}

}  // namespace
}  // namespace evenkeel
