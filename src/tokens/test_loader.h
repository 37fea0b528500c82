// Common parts of the tests of tokens and of their loader.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "evenkeel/tokens.h"
#include "tests/temp_folder.h"

namespace evenkeel {

// Token i has the value i mod 65,536, so that every wrong token is noticed.
inline std::string counting(std::uint64_t first, std::uint64_t count) {
  std::string bytes(count * 2, '\0');
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto token = static_cast<std::uint16_t>(first + i);
    std::memcpy(bytes.data() + 2 * i, &token, 2);
  }
  return bytes;
}

inline std::vector<std::int64_t> values(const Rows<std::int64_t>& rows) {
  const auto flat = rows.flat();
  return {flat.begin(), flat.end()};
}

class TokenLoaderTest : public testing::Test {
 protected:
  Tokens tokens(std::uint64_t count, EngineKind engine = EngineKind::kDirect) {
    return Tokens::open(folder_.write("tokens.bin", counting(0, count)),
                        {.budget = 16_MiB, .engine = engine});
  }
  // Tokens 0, 1, 2, ... over several files of uneven length.
  Tokens shards(const std::vector<std::uint64_t>& counts) {
    std::uint64_t first = 0;
    std::vector<std::string> paths;
    for (const auto count : counts) {
      paths.push_back(
          folder_.write("shard" + std::to_string(paths.size()) + ".bin", counting(first, count)));
      first += count;
    }
    return Tokens::open(paths, {.budget = 16_MiB, .engine = EngineKind::kDirect});
  }

  static void expect_crop(std::span<const std::int64_t> x, std::span<const std::int64_t> y,
                          std::uint64_t start) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x[i], static_cast<std::uint16_t>(start + i));
      ASSERT_EQ(y[i], static_cast<std::uint16_t>(start + i + 1));
    }
  }

  // Expects that the next batch has the crops that explain() returns.
  static void expect_as_explained(TokenLoader& loader) {
    const auto origins = loader.explain(loader.step());
    const Batch& batch = *loader.next();
    const auto x = batch.x<std::int64_t>(), y = batch.y<std::int64_t>();
    ASSERT_EQ(x.size(), origins.size());
    for (std::size_t i = 0; i < origins.size(); ++i) expect_crop(x[i], y[i], origins[i].start);
  }

  TempFolder folder_;
};

}  // namespace evenkeel
