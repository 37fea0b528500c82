// docs/orders.md is the reference: this test reads the vectors from that page.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "evenkeel/order.h"
#include "order/philox.h"

namespace evenkeel {
namespace {

struct Vector {
  std::string kind;
  std::map<std::string, std::uint64_t> input;
  std::vector<std::uint64_t> values;
};

// "shuffled n=10 seed=0 epoch=0 first=0: 3 1 4 ..."
Vector parse(const std::string& line) {
  Vector vector;
  std::istringstream words(line);
  words >> vector.kind;
  for (std::string word; words >> word;) {
    const auto equals = word.find('=');
    if (equals == std::string::npos) {
      vector.values.push_back(std::stoull(word));
    } else {
      vector.input[word.substr(0, equals)] = std::stoull(word.substr(equals + 1));
    }
  }
  return vector;
}

// The page is in a folder above this program. Its path is not compiled in, so that a compiler cache
// can be shared by all copies of the source.
std::filesystem::path orders_page() {
  auto folder = std::filesystem::read_symlink("/proc/self/exe");
  while (folder.has_relative_path() && !exists(folder / "docs/orders.md")) {
    folder = folder.parent_path();
  }
  return folder / "docs/orders.md";
}

std::vector<Vector> vectors(const std::string& kind) {
  std::ifstream page(orders_page());
  EXPECT_TRUE(page) << "cannot read docs/orders.md";
  std::vector<Vector> found;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with(kind + " seed=") || line.starts_with(kind + " n=")) {
      found.push_back(parse(line));
    }
  }
  return found;
}

void expect_golden(const std::string& kind, Order order) {
  const std::vector<Vector> golden = vectors(kind);
  EXPECT_GE(golden.size(), 8u);
  for (const Vector& vector : golden) {
    const auto& in = vector.input;
    order.seed = in.at("seed");
    order.epoch = in.at("epoch");
    if (order.kind == OrderKind::kBlocks) {
      order.blocks = {in.at("block"), in.at("window"), in.at("streams")};
    }
    std::vector<std::uint64_t> rows(vector.values.size());
    Sequence(order, in.at("n")).fill(in.at("first"), rows);
    EXPECT_EQ(rows, vector.values) << kind << " n=" << in.at("n");
  }
}

TEST(Golden, ShuffledIsFrozen) { expect_golden("shuffled", shuffled(0)); }
TEST(Golden, RandomIsFrozen) { expect_golden("random", random(0)); }

TEST(Golden, BlocksIsFrozen) { expect_golden("blocks", block_shuffled(0, 0, {})); }

TEST(Golden, PhiloxIsFrozen) {
  const std::vector<Vector> golden = vectors("philox");
  EXPECT_GE(golden.size(), 3u);
  for (const Vector& vector : golden) {
    const auto& in = vector.input;
    const Block block = philox(in.at("seed"), in.at("epoch"), Stream::kDraws, in.at("counter"));
    EXPECT_EQ(vector.values, (std::vector{block.low, block.high}));
  }
}

}  // namespace
}  // namespace evenkeel
