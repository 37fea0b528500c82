// labels: reads threads
#include "tokens/whole_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "format/token_test_files.h"
#include "tokens/test_loader.h"

namespace evenkeel {
namespace {

class WholeDocuments : public TokenLoaderTest {
 protected:
  // Documents of 1, 8, 2, 9, 3, ... tokens. The tokens are 0, 1, 2, ...
  static std::uint64_t length_of(std::uint64_t document) { return 1 + document * 7 % 13; }
  static std::vector<std::uint64_t> starts(std::uint64_t documents) {
    std::vector<std::uint64_t> all{0};
    for (std::uint64_t i = 0; i < documents; ++i) all.push_back(all.back() + length_of(i));
    return all;
  }
  Tokens documents(std::uint64_t count) {
    const std::vector<std::uint64_t> ends = starts(count);
    folder_.write("d.ds.index",
                  le_all<std::uint64_t>(std::vector<std::uint64_t>(ends.begin() + 1, ends.end())));
    return Tokens::open(folder_.write("d.ds", counting(0, ends.back())),
                        {.budget = 16_MiB, .engine = EngineKind::kDirect});
  }
  static LoaderOptions options(std::uint64_t batch_size, std::uint64_t block_size) {
    LoaderOptions options{.batch_size = batch_size, .block_size = block_size};
    options.order = CropOrder::kShuffled;
    options.seed = 3;
    options.documents.mode = DocumentMode::kWhole;
    return options;
  }
};

// The definition in docs/documents.md, step by step.
std::vector<std::uint64_t> expected_epoch(
    std::uint64_t n, std::uint64_t window, std::uint64_t bucket, std::uint64_t seed,
    std::uint64_t epoch, const std::function<std::uint64_t(std::uint64_t)>& length) {
  const Permutation documents(n, seed, epoch);
  const std::uint64_t windows = (n + window - 1) / window;
  std::vector<std::uint64_t> order;
  for (std::uint64_t w = 0; w < windows; ++w) {
    const std::uint64_t number = epoch * windows + w, most = (window + bucket - 1) / bucket;
    std::vector<std::uint64_t> sorted;
    for (std::uint64_t i = w * window; i < std::min(n, (w + 1) * window); ++i) {
      sorted.push_back(documents(i));
    }
    std::ranges::stable_sort(sorted, {}, length);
    const std::uint64_t full = sorted.size() / bucket, rest = sorted.size() % bucket;
    const std::uint64_t cut =
        rest > 0 ? uniform_draw(seed ^ 0x6275636b6574735f, 1, number, full + 1) : full;
    std::vector<std::uint64_t> mine(sorted.size());
    for (std::uint64_t b = 0; b < full + (rest > 0 ? 1 : 0); ++b) {
      const bool last = b == full;
      const std::uint64_t from = last ? cut * bucket : b * bucket + (b >= cut ? rest : 0);
      const std::uint64_t size = last ? rest : bucket;
      const std::uint64_t to =
          last ? full * bucket : Permutation(full, seed ^ 0x6275636b6574735f, number)(b) * bucket;
      const Permutation inside(size, seed ^ 0x696e5f6275636b65, number * most + b);
      for (std::uint64_t i = 0; i < size; ++i) mine[to + inside(i)] = sorted[from + i];
    }
    order.insert(order.end(), mine.begin(), mine.end());
  }
  return order;
}

TEST_F(WholeDocuments, ComeInTheOrderThatIsDocumented) {
  const std::uint64_t n = 107;
  const Tokens tokens = documents(n);
  LoaderOptions options = this->options(4, 10);
  options.documents.window = 30;  // rounded up to 32, a multiple of the bucket
  TokenLoader loader(tokens, options);
  std::uint64_t step = 0;
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    const auto expected = expected_epoch(n, 32, 4, 3, epoch, [](std::uint64_t document) {
      return std::min<std::uint64_t>(10, length_of(document));
    });
    for (std::uint64_t i = 0; i < n; i += 4) {
      const auto origins = loader.explain(step++);
      ASSERT_EQ(origins.size(), std::min<std::uint64_t>(4, n - i));
      for (std::size_t row = 0; row < origins.size(); ++row) {
        EXPECT_EQ(origins[row].documents.at(0).document, expected[i + row]);
        EXPECT_EQ(origins[row].epoch, epoch);
      }
    }
  }
}

TEST_F(WholeDocuments, LieOneAfterTheOtherWithWhatTheyAre) {
  const Tokens tokens = documents(50);
  // Every third token is not to be predicted.
  std::string mask(tokens.size(), '\1');
  for (std::size_t i = 0; i < mask.size(); i += 3) mask[i] = '\0';
  const Tokens masks = Tokens::open(folder_.write("mask.bin", mask),
                                    {.budget = 16_MiB, .dtype = DType::of<std::uint8_t>()});
  TokenLoader loader({{tokens, 1, masks}}, options(4, 10));
  const auto begins = starts(50);
  for (std::uint64_t step = 0; step < 30; ++step) {
    const auto origins = loader.explain(step);
    const Batch& batch = *loader.next();
    ASSERT_TRUE(batch.ragged());
    ASSERT_EQ(batch.rows(), 1U);
    const auto x = batch.x<std::int64_t>()[0], y = batch.y<std::int64_t>()[0];
    std::size_t at = 0, row = 0;
    for (const CropOrigin& origin : origins) {
      const std::uint64_t document = origin.documents.at(0).document;
      const std::uint64_t length = std::min<std::uint64_t>(10, length_of(document));
      EXPECT_EQ(static_cast<std::size_t>(batch.cu_seqlens()[row++]), at);
      for (std::uint64_t i = 0; i < length; ++i, ++at) {
        const std::uint64_t token = begins[document] + i;
        EXPECT_EQ(static_cast<std::uint64_t>(x[at]), token);
        const bool last = token + 1 == tokens.size();
        EXPECT_TRUE(last || static_cast<std::uint64_t>(y[at]) == token + 1);
        EXPECT_EQ(batch.loss_mask()[0][at], !last && (token + 1) % 3 != 0 ? 1 : 0);
        EXPECT_EQ(static_cast<std::uint64_t>(batch.position_ids()[0][at]), i);
      }
    }
    EXPECT_EQ(at, x.size());
    EXPECT_EQ(batch.cu_seqlens().size(), origins.size() + 1);
    EXPECT_EQ(static_cast<std::size_t>(batch.cu_seqlens().back()), at);
  }
  EXPECT_GT(loader.packing().cut, 0);
}

TEST_F(WholeDocuments, AreCroppedToTheSameStreamThatAScanFinds) {
  const Tokens tokens = documents(200'000);  // more than there are marks
  LoaderOptions options = this->options(8, 5);
  options.documents.mode = DocumentMode::kPacked;
  options.documents.crop_long = true;
  options.documents.window = 64;
  options.epochs = 1;
  TokenLoader loader(tokens, options);
  std::vector<bool> seen(200'000);
  const auto begins = starts(200'000);
  std::uint64_t shown = 0;
  for (std::uint64_t step = 0; step < loader.size(); step += 97) {
    for (const CropOrigin& origin : loader.explain(step)) {
      for (const CropOrigin::Document& piece : origin.documents) {
        EXPECT_LT(piece.from, 5U) << "nothing beyond a row";
        EXPECT_EQ(begins[piece.document] + piece.from, piece.start);
        if (piece.from == 0) {
          EXPECT_FALSE(seen[piece.document]);
          seen[piece.document] = true;
        }
        shown += piece.tokens;
      }
    }
  }
  EXPECT_GT(shown, 0U);
}

}  // namespace
}  // namespace evenkeel
