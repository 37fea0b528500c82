// labels: threads
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <sstream>
#include <thread>

#include "base/reclaimable.h"
#include "evenkeel/array.h"
#include "evenkeel/loader.h"
#include "evenkeel/metrics.h"
#include "tests/counting_file.h"
#include "tests/forked.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

class OpenMetricsTest : public testing::Test {
 protected:
  // The lines of the text that begin with `begin`.
  static std::vector<std::string> lines(std::string_view begin) {
    std::vector<std::string> found;
    std::istringstream text(metrics_text());
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with(begin)) found.push_back(line);
    }
    return found;
  }
  static std::uint64_t value(const std::string& begin) {
    const std::vector<std::string> found = lines(begin);
    if (found.size() != 1) throw std::runtime_error(begin + ": " + std::to_string(found.size()));
    return std::stoull(found.front().substr(found.front().rfind(' ') + 1));
  }
  Array open(std::string_view name = "numbers", std::uint64_t budget = 4_MiB) const {
    return Array::open(counting_file(folder_, std::string(name), 1 << 17),
                       {.budget = budget, .dtype = DType::of<std::uint8_t>()});
  }

  const TempFolder folder_;
};

TEST_F(OpenMetricsTest, EndsWithEof) {
  const std::string text = metrics_text();
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
  EXPECT_EQ(text.find("# EOF"), text.size() - 6);
}

TEST_F(OpenMetricsTest, AnArrayIsListedWhileItIsOpenAndStaysInTheSums) {
  const std::uint64_t before = value("evenkeel_read_bytes_total{source=\"mapping\"}");
  const std::size_t arrays = lines("evenkeel_array_info").size();
  {
    const Array array = open();
    ASSERT_EQ(array.engine().chosen, EngineKind::kMap);
    std::vector<std::byte> out(5000);
    array.read(0, out.size(), out);
    EXPECT_EQ(array.stats().bytes_from_mapping, 5000u);
    EXPECT_EQ(lines("evenkeel_array_info").size(), arrays + 1);
    EXPECT_NE(lines("evenkeel_array_info").back().find(folder_.path("numbers")), std::string::npos);
    EXPECT_NE(lines("evenkeel_array_info").back().find("engine=\"map\""), std::string::npos);
    EXPECT_EQ(value("evenkeel_read_bytes_total{source=\"mapping\"}"), before + 5000);
  }
  EXPECT_EQ(lines("evenkeel_array_info").size(), arrays);
  EXPECT_EQ(value("evenkeel_read_bytes_total{source=\"mapping\"}"), before + 5000);
}

TEST_F(OpenMetricsTest, NamesAreEscaped) {
  const Array array = open("a \"b\"\\c\nd\xFF");
  const std::string line = lines("evenkeel_array_info").back();
  EXPECT_NE(line.find("a \\\"b\\\"\\\\c\\nd\xEF\xBF\xBD\""), std::string::npos) << line;
}

TEST_F(OpenMetricsTest, LoadersAndBudgetsAreListed) {
  const std::uint64_t batches = value("evenkeel_batches_total");
  const Array array = open();
  Loader loader(array, {.batch_size = 1000});
  for (int i = 0; i < 3; ++i) ASSERT_NE(loader.next(), nullptr);
  EXPECT_EQ(loader.stats().batches, 3u);
  EXPECT_EQ(value("evenkeel_batches_total"), batches + 3);
  const std::string info = lines("evenkeel_loader_info").back();
  EXPECT_NE(info.find("kind=\"loader\",batch=\"1,000 rows of 1 bytes\""), std::string::npos)
      << info;
  bool found = false;
  for (const std::string& line : lines("evenkeel_budget_limit_bytes")) {
    found |= line.ends_with(" " + std::to_string(4_MiB));
  }
  EXPECT_TRUE(found);
  bool mapped = false;
  for (const std::string& line : lines("evenkeel_budget_held_bytes")) {
    mapped |= line.find("use=\"mapped data\"") != std::string::npos;
  }
  EXPECT_TRUE(mapped);
}

// The windows of the order `blocks` are read ahead as batches are, but nobody takes them.
TEST_F(OpenMetricsTest, WindowsAreNotBatches) {
  const std::uint64_t batches = value("evenkeel_batches_total");
  const std::size_t loaders = lines("evenkeel_loader_info").size();
  const Array array = Array::open(
      counting_file(folder_, "numbers", 1 << 17),
      {.budget = 4_MiB, .engine = EngineKind::kRead, .dtype = DType::of<std::uint8_t>()});
  Loader loader(array, {.batch_size = 1000, .order = OrderKind::kBlocks, .blocks = {100, 20, 1}});
  for (int i = 0; i < 20; ++i) ASSERT_NE(loader.next(), nullptr);
  EXPECT_EQ(lines("evenkeel_loader_info").size(), loaders + 1);
  EXPECT_EQ(value("evenkeel_batches_total"), batches + 20);
}

// OpenMetrics forbids two samples with the same labels.
TEST_F(OpenMetricsTest, CachesOfOneBudgetAreOneSample) {
  class Cache final : public Reclaimer {
   public:
    explicit Cache(const Budget& budget) : memory(budget, "blocks of two caches") {}
    void reclaim(std::uint64_t bytes) noexcept override {
      memory.shrink(std::min(bytes, memory.bytes()));
    }
    ReclaimableMemory memory;
  };
  const Budget budget(1_MiB);
  const std::array caches = {std::make_shared<Cache>(budget), std::make_shared<Cache>(budget)};
  for (const auto& cache : caches) {
    cache->memory.serve(cache);
    ASSERT_TRUE(cache->memory.try_grow(400));
  }
  const Reservation third = budget.reserve(100, "blocks of two caches");
  std::vector<std::string> held = lines("evenkeel_budget_held_bytes");
  std::erase_if(held, [](const std::string& line) {
    return line.find("of two caches") == std::string::npos;
  });
  ASSERT_EQ(held.size(), 1u);
  EXPECT_TRUE(held.front().ends_with(" 900")) << held.front();
  ASSERT_EQ(budget.uses().size(), 1u);
  EXPECT_EQ(budget.uses().front().count, 3u);
}

TEST_F(OpenMetricsTest, AChildHasTheArraysButNotTheLoaders) {
  const Array array = open();
  Loader loader(array, {.batch_size = 1000, .prefetch = 0});  // without threads
  ASSERT_NE(loader.next(), nullptr);
  EXPECT_EQ(in_child([&] {
              return std::to_string(lines("evenkeel_loader_info").size()) + " " +
                     std::to_string(value("evenkeel_batches_total")) + " " +
                     std::to_string(std::min<std::size_t>(lines("evenkeel_array_info").size(), 1));
            }),
            "0 0 1");
}

TEST_F(OpenMetricsTest, AChildDoesNotCountWhatItsParentRead) {
  const Array array = open();
  std::vector<std::byte> out(5000);
  array.read(0, out.size(), out);
  ASSERT_EQ(array.stats().bytes_from_mapping, 5000u);
  const std::string mapping = "evenkeel_read_bytes_total{source=\"mapping\"}";
  EXPECT_EQ(in_child([&] {
              const std::string before = std::to_string(value(mapping));
              array.read(0, 10, std::span(out).first(10));
              return before + " " + std::to_string(value(mapping));
            }),
            "0 10");
}

// Arrays are opened, read and closed meanwhile. tests/fork_test.cc does the same with forks.
TEST_F(OpenMetricsTest, ThreadsMayCallItAtAnyTime) {
  const Array kept = open("kept");
  std::atomic<bool> ended = false;
  std::thread asks([&] {
    while (!ended) EXPECT_TRUE(metrics_text().ends_with("# EOF\n"));
  });
  std::thread reads([&] {
    std::vector<std::byte> out(100);
    while (!ended) kept.read(0, out.size(), out);
  });
  for (int i = 0; i < 20; ++i) {
    const Array array = open("other");
    Loader loader(array, {.batch_size = 100});
    ASSERT_NE(loader.next(), nullptr);
  }
  ended = true;
  asks.join();
  reads.join();
}

}  // namespace
}  // namespace evenkeel
