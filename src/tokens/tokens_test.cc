// Slices of a stream of tokens.
#include "evenkeel/tokens.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>

#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

using testing::Test;

// Token i has the value i mod 65,536.
std::string counting_tokens(std::uint64_t first, std::uint64_t count) {
  std::string bytes(count * 2, '\0');
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto token = static_cast<std::uint16_t>(first + i);
    std::memcpy(bytes.data() + 2 * i, &token, 2);
  }
  return bytes;
}

class TokenSlices : public Test {
 protected:
  // Tokens 0, 1, 2, ... in three files.
  TokenSlices() {
    paths_ = {folder_.write("a.bin", counting_tokens(0, 5000)),
              folder_.write("b.bin", counting_tokens(5000, 1)),
              folder_.write("c.bin", counting_tokens(5001, 4999))};
  }
  Tokens open(TokensOptions options = {}) const {
    options.budget = 16_MiB;
    return Tokens::open(paths_, options);
  }
  static std::vector<std::uint16_t> read(const Tokens& tokens, std::uint64_t first,
                                         std::uint64_t count) {
    std::vector<std::uint16_t> out(count);
    tokens.crops(std::span(&first, 1), count, std::as_writable_bytes(std::span(out)));
    return out;
  }
  static void expect_tokens(const Tokens& tokens, std::uint64_t first, std::uint64_t count) {
    ASSERT_EQ(tokens.size(), count);
    ASSERT_EQ(tokens.first_token(), first);
    const auto got = read(tokens, 0, count);
    for (std::uint64_t i = 0; i < count; ++i) ASSERT_EQ(got[i], first + i);
  }

  TempFolder folder_;
  std::vector<std::string> paths_;
};

RC_GTEST_FIXTURE_PROP(TokenSlices, HoldTheTokensOfTheirRange, ()) {
  const auto engine = *rc::gen::element(EngineKind::kAuto, EngineKind::kMap, EngineKind::kRead,
                                        EngineKind::kDirect);
  const auto first = *rc::gen::inRange<std::int64_t>(0, 10'000);
  const auto end = *rc::gen::inRange<std::int64_t>(first + 1, 10'001);
  const bool from_end = *rc::gen::arbitrary<bool>();
  const std::int64_t start = from_end ? first - 10'000 : first;
  const std::optional<std::int64_t> stop = end == 10'000 ? std::optional<std::int64_t>()
                                           : from_end    ? end - 10'000
                                                         : end;
  const Tokens at_once = open({.engine = engine, .start = start, .stop = stop});
  const Tokens later = open({.engine = engine}).slice(start, stop);
  for (const Tokens& tokens : {at_once, later}) {
    expect_tokens(tokens, static_cast<std::uint64_t>(first),
                  static_cast<std::uint64_t>(end - first));
  }
  RC_ASSERT(at_once.fingerprint() == later.fingerprint());
}

TEST_F(TokenSlices, OfSlicesCountFromTheBeginningOfTheFiles) {
  const Tokens part = open().slice(1000, 9000).slice(100, -100);
  expect_tokens(part, 1100, 7800);
  EXPECT_EQ(part.fingerprint(), open({.start = 1100, .stop = 8900}).fingerprint());
}

TEST_F(TokenSlices, HaveFingerprintsOfTheirOwn) {
  const Tokens all = open();
  EXPECT_EQ(all.slice(0).fingerprint(), all.fingerprint());
  EXPECT_EQ(all.slice(0, 10'000).fingerprint(), all.fingerprint());
  EXPECT_NE(all.slice(0, 5000).fingerprint(), all.fingerprint());
  EXPECT_NE(all.slice(0, 4000).fingerprint(), all.slice(500, 4500).fingerprint());
}

TEST_F(TokenSlices, OutsideTheStreamAreRefused) {
  const Tokens all = open();
  for (const auto& [start, stop] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 10'001},
                                                          {10'000, 10'001},
                                                          {-10'001, 5},
                                                          {5, 5},
                                                          {6, 5},
                                                          {0, -10'000},
                                                          {INT64_MIN, 1},
                                                          {0, INT64_MAX}}) {
    EXPECT_THROW(static_cast<void>(all.slice(start, stop)), Error) << start << " " << stop;
  }
}

TEST_F(TokenSlices, CropsOutsideAreRefused) {
  const Tokens part = open({.start = 100, .stop = 200});
  std::vector<std::byte> out(400);
  for (const std::uint64_t start : {91, 100, 1000}) {
    EXPECT_THROW(part.crops(std::span(&start, 1), 10, out), Error);
  }
  const std::vector<std::uint64_t> starts = {0, 50};
  EXPECT_THROW(part.crops(starts, 50, std::span(out).first(199)), Error);
  EXPECT_NO_THROW(part.crops(starts, 50, out));
  std::vector<std::int64_t> x(10), y(10);
  const std::uint64_t last = 90;
  EXPECT_THROW(part.xy<std::int64_t>(std::span(&last, 1), 10, x, y), Error);
}

TEST_F(TokenSlices, LoadersStayInsideTheirSlice) {
  const auto [train, validation] = std::pair(open().slice(0, 9000), open().slice(9000));
  for (const CropOrder order : {CropOrder::kRandom, CropOrder::kShuffled, CropOrder::kCovering}) {
    const auto check = [&](const Tokens& tokens, std::uint64_t begin, std::uint64_t end) {
      TokenLoader loader(tokens, {.batch_size = 4, .block_size = 64, .order = order, .steps = 20});
      for (const Batch& batch : loader) {
        for (const std::int64_t token : batch.y<std::int64_t>().flat()) {
          ASSERT_TRUE(token >= static_cast<std::int64_t>(begin) + 1 &&
                      token < static_cast<std::int64_t>(end));
        }
      }
      const CropOrigin origin = loader.explain(3)[0];
      const std::uint64_t token = origin.start + begin;
      const std::uint64_t first_in_file = origin.path == paths_[2]   ? 5001
                                          : origin.path == paths_[1] ? 5000
                                                                     : 0;
      EXPECT_EQ(origin.offset, 2 * (token - first_in_file));
    };
    check(train, 0, 9000);
    check(validation, 9000, 10'000);
    TokenLoader one(train, {.block_size = 64, .order = order});
    TokenLoader other(validation, {.block_size = 64, .order = order});
    EXPECT_THROW(other.load(one.state()), Error);
  }
}

}  // namespace
}  // namespace evenkeel
