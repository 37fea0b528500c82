// labels: threads
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "base/fault_hook.h"
#include "evenkeel/bytes.h"
#include "evenkeel/prepare.h"
#include "format/test_files.h"
#include "order/chi_square.h"
#include "order/philox.h"
#include "prepare/shuffle_parts.h"

namespace evenkeel {
namespace {

class ShuffleTest : public FileTest {
 protected:
  std::vector<std::uint32_t> shuffled(std::uint32_t count, std::uint64_t seed,
                                      std::uint64_t budget = 16_MiB) const {
    std::vector<std::uint32_t> values(count);
    std::iota(values.begin(), values.end(), 0u);
    const std::string in = write(
        "in", {reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]});
    ShuffleOptions options;
    options.input = {.paths = {in}, .dtype = DType::of<std::uint32_t>()};
    options.output = path("out");
    options.seed = seed;
    options.budget = budget;
    EXPECT_EQ(shuffle(options).items, count);
    EXPECT_LE(options.budget.peak(), budget);
    EXPECT_EQ(options.budget.in_use(), 0u);
    std::ifstream(options.output, std::ios::binary)
        .read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * sizeof values[0]));
    return values;
  }
};

// The definition of the order: sorted by 128 bits of Philox.
TEST_F(ShuffleTest, IsSortedByPhilox) {
  constexpr std::uint32_t kCount = 50'000;
  std::vector<std::uint32_t> wanted(kCount);
  std::iota(wanted.begin(), wanted.end(), 0u);
  std::ranges::sort(wanted, {}, [](std::uint32_t i) {
    const Block key = philox(11, 0x73687566666c6500, Stream::kDraws, i);
    return std::pair(key.high, key.low);
  });
  EXPECT_EQ(shuffled(kCount, 11), wanted);
}

// Counts the orders of five items over many seeds.
TEST_F(ShuffleTest, EveryPlaceIsEquallyLikely) {
  constexpr std::uint32_t kItems = 5;
  std::map<std::vector<std::uint32_t>, std::uint64_t> orders;
  constexpr std::uint64_t kSeeds = 1'200;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    // The definition from the test above, without files.
    std::vector<std::uint32_t> order(kItems);
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::sort(order, {}, [&](std::uint32_t i) {
      return philox(seed, 0x73687566666c6500, Stream::kDraws, i).high;
    });
    ++orders[order];
  }
  EXPECT_EQ(orders.size(), 120u);
  std::vector<std::uint64_t> counts;
  for (const auto& [order, count] : orders) counts.push_back(count);
  EXPECT_LT(std::abs(chi_square_z(counts)), kMaxDeviation);
}

TEST_F(ShuffleTest, PositionsAreUniform) {
  const auto order = shuffled(200'000, 3);
  // Counts items from each twentieth of the input in each twentieth of the output.
  std::vector<std::uint64_t> counts(400);
  for (std::size_t i = 0; i < order.size(); ++i) ++counts[i / 10'000 * 20 + order[i] / 10'000];
  EXPECT_LT(std::abs(chi_square_z(counts)), kMaxDeviation);
}

TEST_F(ShuffleTest, SmallFilesAndManyParts) {
  for (const std::uint32_t count : {1u, 2u, 3u, 1'000u}) {
    auto order = shuffled(count, 1);
    std::ranges::sort(order);
    for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(order[i], i);
  }
  EXPECT_EQ(shuffled(400'000, 9, 16_MiB), shuffled(400'000, 9, 256_MiB));
}

// If the output is complete and the scratch file still exists, nothing is written twice.
TEST_F(ShuffleTest, KilledBeforeTheScratchFileIsRemoved) {
  class Killed final : public sys::FaultHook {
   public:
    explicit Killed(int renames) : renames_(renames) { sys::fault_hook = this; }
    ~Killed() { sys::fault_hook = nullptr; }
    sys::Fault on(sys::Call call) override {
      if (call == sys::Call::kUnlink) return {.error = EIO};
      return {.error = call == sys::Call::kRename && ++seen_ == renames_ ? EIO : 0};
    }
    int seen() const { return seen_; }

   private:
    const int renames_;
    std::atomic<int> seen_ = 0;
  };
  const auto wanted = shuffled(50'000, 4);
  ShuffleOptions options;
  options.input = {.paths = {path("in")}, .dtype = DType::of<std::uint32_t>()};
  options.output = path("out");
  options.seed = 4;
  options.budget = 16_MiB;
  int renames = 0;
  {
    const Killed count(0);
    shuffle(options);
    renames = count.seen();
  }
  std::filesystem::remove(path("out"));
  {
    const Killed last(renames);
    EXPECT_THROW(shuffle(options), Error);
  }
  EXPECT_TRUE(std::filesystem::exists(path("out.shuffle.partial")));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
  options.resume = true;
  const WorkReport report = shuffle(options);
  EXPECT_TRUE(report.resumed);
  EXPECT_EQ(report.items, 50'000u);
  std::vector<std::uint32_t> found(50'000);
  EXPECT_EQ(std::filesystem::file_size(path("out")), 200'000u);
  std::ifstream(path("out"), std::ios::binary).read(reinterpret_cast<char*>(found.data()), 200'000);
  EXPECT_EQ(found, wanted);
  EXPECT_FALSE(std::filesystem::exists(path("out.shuffle.partial")));
}

TEST_F(ShuffleTest, SmallPartsTakeLittleRoom) {
  shuffled(20'000, 1);
  ShuffleOptions options;
  options.input = {.paths = {path("in")}, .dtype = DType::of<std::uint32_t>()};
  options.output = path("part");
  options.seed = 1;
  options.budget = 64_MiB;
  constexpr std::uint64_t kBuckets = 150;
  EXPECT_EQ(distribute_part(options, "kind", {{0, 0}, 20'000}, kBuckets).items, 20'000u);
  EXPECT_LE(std::filesystem::file_size(path("part.partial")), kBuckets * 4096);
  const std::string output = path("all");
  options.output = output;
  EXPECT_EQ(write_part(options, "kind", {path("part")}, 0, kBuckets).items, 20'000u);
  std::ifstream one(path("out")), other(output);
  EXPECT_TRUE(std::equal(std::istreambuf_iterator<char>(one), {},
                         std::istreambuf_iterator<char>(other), {}));
}

TEST_F(ShuffleTest, AsManyPartsAsFilesCanBeOpen) {
  write("in", std::string(4'000, 'x'));
  ShuffleOptions options;
  options.input = {.paths = {path("in")}, .dtype = DType::of<std::uint32_t>()};
  options.output = path("out");
  options.budget = 64_MiB;
  EXPECT_EQ(plan_shuffle(options, 100).buckets, 100u);
  try {
    plan_shuffle(options, std::uint64_t{1} << 40);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("files open"), std::string::npos) << error.what();
  }
}

// Later lengths differ from the first ones, so a part does not fit and is read several times.
TEST_F(ShuffleTest, PartsThatAreTooLargeAreReadAgain) {
  std::string text;
  for (int i = 0; i < 40'000; ++i) text += std::string(300, 'a') + "\n";
  for (int i = 0; i < 600'000; ++i) text += std::to_string(i % 10) + "\n";
  const std::string in = write("in.txt", text);
  ShuffleOptions options;
  options.input = {.paths = {in}, .unit = ItemUnit::kLines};
  options.output = path("out.txt");
  options.budget = 16_MiB;
  EXPECT_EQ(shuffle(options).items, 640'000u);
  EXPECT_LE(options.budget.peak(), 16_MiB);
  std::map<std::string, int> lines, wanted;
  std::ifstream before(in), after(options.output);
  for (std::string line; std::getline(before, line);) ++wanted[line];
  for (std::string line; std::getline(after, line);) ++lines[line];
  EXPECT_EQ(lines, wanted);
}

}  // namespace
}  // namespace evenkeel
