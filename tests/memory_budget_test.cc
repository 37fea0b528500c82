// Memory stays within the budget, by the kernel's figures for a separate process that reads. Not
// run under sanitizers, because their memory would be measured.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <iostream>
#include <random>
#include <sstream>

#include "evenkeel/array.h"
#include "evenkeel/meter.h"
#include "evenkeel/tokens.h"
#include "tests/cgroup_scope.h"
#include "tests/forked.h"
#include "tests/memory_watch.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

constexpr EngineKind kBounded[] = {EngineKind::kRemap, EngineKind::kAdvise, EngineKind::kRead,
                                   EngineKind::kDirect, EngineKind::kAuto};
constexpr std::uint64_t kRowBytes = 162 * 4, kTokens = 1024;
// Twice the largest budget. Not more, because checking what is cached takes longer for larger
// files.
constexpr std::uint64_t kDataBytes = 128_MiB;

// ---------------------------------------------------------------- the process that reads

struct Wish {
  std::string engine, pattern, path;
  std::uint64_t budget = 0, most_items = 0;

  std::string text() const {
    return engine + " " + pattern + " " + std::to_string(budget) + " " +
           std::to_string(most_items) + " " + path;
  }
  static Wish parse(const std::string& text) {
    Wish wish;
    std::istringstream(text) >> wish.engine >> wish.pattern >> wish.budget >> wish.most_items >>
        wish.path;
    return wish;
  }
};

// Reading four times the budget reaches the peak several times. Slow engines stop earlier, to limit
// the time of the tests.
class Enough {
 public:
  explicit Enough(const Wish& wish) : bytes_(4 * wish.budget) {}
  bool operator()(std::uint64_t bytes_read) const {
    return bytes_read >= bytes_ || std::chrono::steady_clock::now() > end_;
  }

 private:
  const std::uint64_t bytes_;
  const std::chrono::steady_clock::time_point end_ =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(250);
};

// Tests that limit the number of items compare memory across file sizes. They turn the cache off,
// because it takes all that the budget leaves.
std::optional<std::uint64_t> without_cache(const Wish& wish) {
  return wish.most_items ? std::optional<std::uint64_t>(0) : std::nullopt;
}

Array open_rows(const Wish& wish) {
  return Array::open(wish.path, {.budget = wish.budget,
                                 .engine = parse_engine(wish.engine),
                                 .dtype = DType::of<float>(),
                                 .shape = {-1, 162}});
}

std::uint64_t read_chunks(const Wish& wish, std::uint64_t rows, const Order& order) {
  const Array array = open_rows(wish);
  const Enough enough(wish);
  std::uint64_t items = 0;
  for (const Chunk& chunk : array.chunks(rows, order)) {
    items += chunk.size();
    if (wish.most_items ? items >= wish.most_items : enough(items * kRowBytes)) break;
  }
  return items;
}

std::uint64_t read_crops(const Wish& wish, std::vector<std::byte>& out) {
  const Array array = Array::open(wish.path, {.budget = wish.budget,
                                              .engine = parse_engine(wish.engine),
                                              .dtype = DType::of<std::uint16_t>(),
                                              .cache = without_cache(wish)});
  const Enough enough(wish);
  std::mt19937_64 random(1);
  std::uint64_t items = 0;
  while (wish.most_items ? items < wish.most_items : !enough(items * kTokens * 2)) {
    std::uint64_t starts[64];
    for (auto& start : starts) start = random() % (array.rows() - kTokens);
    array.crops(starts, kTokens, out);
    items += 64;
  }
  return items;
}

// Reads a few hot rows among others until the cache cannot grow any more. Returns the bytes in the
// cache, or 0 if that is less than half of the budget.
std::uint64_t read_hot_rows(const Wish& wish, std::vector<std::byte>& out) {
  const Array array = open_rows(wish);
  std::mt19937_64 random(1);
  for (int i = 0; i < 1500; ++i) {
    std::uint64_t rows[64];
    for (auto& row : rows) row = random() % (random() % 10 < 9 ? array.rows() / 64 : array.rows());
    array.gather(rows, out);
  }
  const std::uint64_t cached = array.budget().cached();
  return cached > wish.budget / 2 ? cached : 0;
}

// Data that fits is mapped and read completely. Then chunks need the memory of the mapping.
std::uint64_t read_and_stop_mapping(const Wish& wish) {
  const Array array = open_rows(wish);
  if (array.engine().chosen != EngineKind::kMap) return 0;
  std::uint64_t items = 0, sum = 0;
  for (const Chunk& chunk : array.chunks(1000)) {
    for (const float value : chunk.rows<float>().flat()) sum += value != 0;
  }
  for (const Chunk& chunk : array.chunks(wish.budget / 2 / kRowBytes, shuffled(1))) {
    items += chunk.size();
  }
  return array.engine().chosen == EngineKind::kMap || sum == 0 ? 0 : items;
}

std::uint64_t read_batches(const Wish& wish) {
  const Tokens tokens =
      Tokens::open(wish.path, {.budget = wish.budget, .engine = parse_engine(wish.engine)});
  TokenLoader loader(tokens, {.batch_size = 64, .block_size = kTokens, .prefetch = 4});
  const Enough enough(wish);
  std::uint64_t items = 0;
  while (!enough(items * kTokens * 2)) items += loader.next()->rows();
  return items;
}

// Reads many small batches. Returns 0 if memory grew after the first hundred. The tolerance is for
// parts of the read buffers that are first touched when two crops happen to be adjacent. A leak of
// 16 bytes per batch would be noticed.
std::uint64_t read_many_batches(const Wish& wish) {
  const Tokens tokens = Tokens::open(
      wish.path,
      {.budget = wish.budget, .engine = parse_engine(wish.engine), .cache = without_cache(wish)});
  TokenLoader loader(tokens, {.batch_size = 2, .block_size = 32, .prefetch = 4});
  for (int i = 0; i < 100; ++i) loader.next();
  const ProcessMemory before = process_memory();
  for (std::uint64_t i = 0; i < wish.most_items; ++i) loader.next();
  const ProcessMemory after = process_memory();
  const bool grew = after.anon > before.anon + 128_KiB || after.page_tables > before.page_tables;
  return grew ? 0 : wish.most_items;
}

std::uint64_t carry_out(const Wish& wish, std::vector<std::byte>& out) {
  if (wish.pattern == "batches") return read_batches(wish);
  if (wish.pattern == "many-batches") return read_many_batches(wish);
  if (wish.pattern == "hot-rows") return read_hot_rows(wish, out);
  if (wish.pattern == "open") return open_rows(wish).rows();
  if (wish.pattern == "crops") return read_crops(wish, out);
  if (wish.pattern == "rows") {
    return read_chunks(wish, wish.budget >= 64_MiB ? 50'000 : 10'000, shuffled(1));
  }
  if (wish.pattern == "scan") return read_chunks(wish, wish.budget / 8 / kRowBytes, sequential());
  return read_and_stop_mapping(wish);
}

int worker() {
  const Wish wish = Wish::parse(WorkerSide::wish());
  // Memory of the caller, so allocated before measuring begins.
  std::vector<std::byte> out(64 * kTokens * 2);
  WorkerSide::ready();
  std::string said;
  try {
    said = std::to_string(carry_out(wish, out)) + " items";
  } catch (const std::exception& error) {
    said = std::string("threw: ") + error.what();
    std::ranges::replace(said, '\n', ' ');
  }
  WorkerSide::done(said);
  return 0;
}

// ---------------------------------------------------------------- the process that measures

class MemoryBudget : public testing::Test {
 protected:
  MemoryBudget() : folder_(disk()) { folder_.open_to_everyone(); }

  static std::filesystem::path disk() {
    const auto folder = disk_folder();
    return folder ? *folder : std::filesystem::path("/var/tmp");
  }

  // A file of random data, about this long: whole rows, none of them cached.
  std::string real_file(const std::string& name, std::uint64_t about) const {
    const Fd fd(::open(folder_.path(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    std::vector<std::uint64_t> block(kRowBytes * 1024 / 8);
    std::mt19937_64 random(1);
    for (auto& word : block) word = random();
    for (std::uint64_t at = 0; at + kRowBytes * 1024 <= about; at += kRowBytes * 1024) {
      block[0] = at;
      if (::write(fd.get(), block.data(), kRowBytes * 1024) != kRowBytes * 1024) {
        throw std::runtime_error("no room for " + name);
      }
    }
    drop(name);
    return folder_.path(name);
  }
  // A file of one tebibyte that is one hole.
  std::string sparse_file(const std::string& name) const {
    const Fd fd(::open(folder_.path(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    if (::ftruncate(fd.get(), (1_GiB * 1024 / kRowBytes + 1) * kRowBytes) != 0) {
      throw std::runtime_error("no sparse file");
    }
    return folder_.path(name);
  }
  void drop(const std::string& name) const { drop_file_cache(folder_.path(name)); }
  void drop_part(const std::string& name, std::uint64_t begin, std::uint64_t length) const {
    const Fd fd = open_readable(folder_.path(name));
    sys::fadvise(fd.get(), begin, length, POSIX_FADV_DONTNEED);
  }
  void warm(const std::string& name) const {
    const Fd fd = open_readable(folder_.path(name));
    std::vector<std::byte> piece(4_MiB);
    for (std::uint64_t at = 0;;) {
      const std::size_t got = read_upto(fd.get(), at, piece, name);
      if (got == 0) return;
      at += got;
    }
  }

  static MemoryGrowth watch(const Wish& wish, const std::function<void()>& before = nullptr) {
    MemoryWatch watched(wish.text(), wish.path, before);
    const MemoryGrowth growth = watched.run();
    if (std::getenv("EVENKEEL_TEST_VERBOSE")) {
      std::cout << wish.text() << ": " << growth.describe() << std::endl;
    }
    return growth;
  }
  // Whether the pages that were cached before still are. The kernel may evict a few.
  static bool kept(const MemoryGrowth& growth) {
    return growth.cached_after >= growth.cached_before - growth.cached_before / 64;
  }
  // For tests of `kept`: tries up to three times, because the kernel may evict more by itself. An
  // engine that evicts does so every time.
  static MemoryGrowth watch_kept(const Wish& wish, const std::function<void()>& prepare) {
    MemoryGrowth growth;
    for (int i = 0; i < 3; ++i) {
      prepare();
      growth = watch(wish);
      if (kept(growth)) break;
    }
    return growth;
  }
  static bool did_something(const MemoryGrowth& growth) {
    return growth.said.ends_with(" items") && growth.said != "0 items";
  }
  static void expect_within(const Wish& wish, const MemoryGrowth& growth) {
    EXPECT_TRUE(did_something(growth)) << wish.text() << ": " << growth.describe();
    EXPECT_LE(growth.memory, wish.budget) << wish.text() << ": " << growth.describe();
    // The resident set also grows by pages of the program's code that run for the first time.
    EXPECT_LE(growth.rss, wish.budget + 4_MiB) << wish.text() << ": " << growth.describe();
  }

  TempFolder folder_;
};

// Verifies that MemoryWatch notices growth.
TEST_F(MemoryBudget, TheWatchSeesWhatAPlainMappingDoes) {
  const auto path = real_file("data", 256_MiB);
  const MemoryGrowth growth = watch({"map", "crops", path, 16_MiB, 6400});
  EXPECT_GT(growth.rss, 16_MiB) << growth.describe();
  EXPECT_GT(growth.memory, 16_MiB) << growth.describe();
}

TEST_F(MemoryBudget, EveryEngineAndEveryPatternStaysUnderTheLine) {
  const auto path = real_file("data", kDataBytes);
  for (const bool is_warm : {false, true}) {
    for (const EngineKind engine : kBounded) {
      for (const char* pattern : {"crops", "rows", "scan"}) {
        for (const std::uint64_t budget : {64_MiB, 16_MiB}) {
          SCOPED_TRACE(is_warm ? "warm" : "cold");
          const Wish wish{std::string(engine_name(engine)), pattern, path, budget};
          const MemoryGrowth growth =
              watch_kept(wish, [&] { is_warm ? warm("data") : drop("data"); });
          expect_within(wish, growth);
          EXPECT_TRUE(!is_warm || kept(growth)) << wish.text() << ": " << growth.describe();
        }
      }
    }
  }
}

TEST_F(MemoryBudget, ACacheThatIsFullStaysUnderTheLine) {
  const auto path = real_file("data", 256_MiB);
  for (const std::uint64_t budget : {16_MiB, 8_MiB}) {
    const Wish wish{"auto", "hot-rows", path, budget};
    expect_within(wish, watch(wish));
  }
}

TEST_F(MemoryBudget, TrainingBatchesStayUnderTheLine) {
  const auto path = real_file("data", kDataBytes);
  for (const EngineKind engine : kBounded) {
    for (const std::uint64_t budget : {64_MiB, 8_MiB}) {
      drop("data");
      const Wish wish{std::string(engine_name(engine)), "batches", path, budget};
      expect_within(wish, watch(wish));
    }
  }
}

TEST_F(MemoryBudget, BatchesAfterTheFirstHundredTakeNoMemory) {
  const auto path = real_file("data", 64_MiB);
  for (const char* engine : {"direct", "auto", "read"}) {
    const Wish wish{engine, "many-batches", path, 16_MiB, 10'000};
    expect_within(wish, watch(wish));
  }
}

TEST_F(MemoryBudget, PeakMemoryDoesNotDependOnTheSizeOfTheFile) {
  const std::string paths[] = {real_file("small", 64_MiB), real_file("large", 256_MiB),
                               sparse_file("sparse")};
  for (const char* engine : {"direct", "auto", "read"}) {
    for (const char* pattern : {"crops", "scan", "rows"}) {
      std::vector<std::uint64_t> peaks;
      std::string said;
      for (const auto& path : paths) {
        const Wish wish{engine, pattern, path, 16_MiB, 50'000};
        const MemoryGrowth growth = watch(wish);
        expect_within(wish, growth);
        peaks.push_back(growth.anon + growth.cache);
        said += "\n" + wish.text() + ": " + growth.describe();
      }
      const auto [least, most] = std::ranges::minmax(peaks);
      EXPECT_LE(most, peaks[0] + peaks[0] / 20 + 64_KiB) << said;
      // `read` touches less of its buffer if rows are too far apart to be read together.
      if (engine != std::string("read") || pattern == std::string("scan")) {
        EXPECT_LE(most - least, most / 20) << said;
      }
    }
  }
}

// Except for the buffers that `direct` pins at open, a sixteenth of the budget.
TEST_F(MemoryBudget, OpeningATebibyteTouchesNextToNothing) {
  const auto path = sparse_file("sparse");
  for (const EngineKind engine : kBounded) {
    const Wish wish{std::string(engine_name(engine)), "open", path, 16_MiB};
    const MemoryGrowth growth = watch(wish);
    EXPECT_TRUE(did_something(growth)) << growth.describe();
    EXPECT_LE(growth.cache, 64_KiB) << wish.text() << ": " << growth.describe();
    EXPECT_LT(growth.memory, wish.budget / 16 + 1_MiB) << wish.text() << ": " << growth.describe();
  }
}

TEST_F(MemoryBudget, InsideACgroupOfBudgetPlusSlackNothingIsKilled) {
  const auto path = real_file("data", kDataBytes);
  for (const EngineKind engine : kBounded) {
    for (const char* pattern : {"crops", "rows", "scan"}) {
      const CgroupScope cgroup(24_MiB);
      if (!cgroup.why_not().empty()) GTEST_SKIP() << cgroup.why_not();
      drop("data");
      const Wish wish{std::string(engine_name(engine)), pattern, path, 16_MiB};
      const MemoryGrowth growth = watch(wish, [&] {
        if (!cgroup.add(::getpid())) ::_exit(5);
      });
      expect_within(wish, growth);
      EXPECT_EQ(cgroup.oom_kills(), 0u);
      EXPECT_EQ(cgroup.limit_hits(), 0u)
          << wish.text() << ": " << growth.describe() << ", cgroup peak " << cgroup.peak();
    }
  }
}

TEST_F(MemoryBudget, AutoAddsNoPageToACacheThatHasEverything) {
  const auto path = real_file("data", kDataBytes);
  warm("data");
  for (const char* pattern : {"crops", "rows", "scan"}) {
    const Wish wish{"auto", pattern, path, 64_MiB};
    const MemoryGrowth growth = watch(wish);
    expect_within(wish, growth);
    EXPECT_EQ(growth.cache, 0u) << wish.text() << ": " << growth.describe();
    EXPECT_GT(growth.cached_before, kDataBytes * 3 / 4);
  }
}

TEST_F(MemoryBudget, AutoFillsNoHoleInTheCache) {
  const auto path = real_file("data", kDataBytes);
  warm("data");
  // Holes of several sizes, so that any request may meet one. Not in the first page, which is read
  // through the cache at open.
  for (std::uint64_t at = 512_KiB; at < kDataBytes - 6_MiB; at += 1_MiB) {
    drop_part("data", at, 4_KiB << (at / 1_MiB % 8));
  }
  for (const char* pattern : {"crops", "rows", "scan"}) {
    const Wish wish{"auto", pattern, path, 64_MiB};
    const MemoryGrowth growth = watch(wish);
    expect_within(wish, growth);
    EXPECT_EQ(growth.cache, 0u) << wish.text() << ": " << growth.describe();
    EXPECT_GT(growth.cached_before, kDataBytes / 2);
    EXPECT_LT(growth.cached_before, kDataBytes - 1_MiB);
  }
}

// A fault may map all of a large folio, far beyond the requested pages.
TEST_F(MemoryBudget, ASmallBudgetHoldsBesideHolesInTheCache) {
  const auto path = real_file("data", kDataBytes);
  for (const EngineKind engine : kBounded) {
    for (const char* pattern : {"crops", "scan"}) {
      warm("data");
      for (std::uint64_t at = 0; at < kDataBytes - 6_MiB; at += 256_KiB)
        drop_part("data", at, 4_KiB);
      const Wish wish{std::string(engine_name(engine)), pattern, path, 4_MiB};
      expect_within(wish, watch(wish));
    }
  }
}

// Engines drop only the pages that they brought in themselves, also from requests that were partly
// cached.
TEST_F(MemoryBudget, PagesThatOthersBroughtStayEvenBesideHoles) {
  const auto path = real_file("data", kDataBytes);
  for (const EngineKind engine : kBounded) {
    const Wish wish{std::string(engine_name(engine)), "scan", path, 64_MiB};
    const MemoryGrowth growth = watch_kept(wish, [&] {
      warm("data");
      for (std::uint64_t at = 0; at < kDataBytes - 6_MiB; at += 1_MiB) {
        drop_part("data", at, 64_KiB);
      }
    });
    expect_within(wish, growth);
    EXPECT_GT(growth.cached_before, kDataBytes * 3 / 4);
    EXPECT_TRUE(kept(growth)) << wish.text() << ": " << growth.describe();
  }
}

TEST_F(MemoryBudget, PageTablesOfAdviseStayBoundedOnATebibyte) {
  const auto path = sparse_file("sparse");
  const Wish wish{"advise", "crops", path, 16_MiB, 50'000};
  const MemoryGrowth growth = watch(wish);
  expect_within(wish, growth);
  EXPECT_LE(growth.page_tables, 2_MiB) << growth.describe();
  EXPECT_LE(growth.memory + growth.page_tables, wish.budget) << growth.describe();
}

TEST_F(MemoryBudget, WithoutPrivilegesTheLineHoldsAsWell) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become someone else";
  const auto path = real_file("data", kDataBytes);
  for (const bool is_warm : {false, true}) {
    for (const EngineKind engine : kBounded) {
      for (const char* pattern : {"crops", "rows", "scan"}) {
        SCOPED_TRACE(is_warm ? "warm" : "cold");
        // If the kernel does not say what is cached, `remap`, `advise` and `read` drop all pages.
        if (is_warm) warm("data");
        if (!is_warm) drop("data");
        const Wish wish{std::string(engine_name(engine)), pattern, path, 16_MiB};
        expect_within(wish, watch(wish, [] {
                        if (!become_nobody()) ::_exit(6);
                      }));
      }
    }
  }
}

// Pages of the mapping stay cached when it ends. They must not be added to the buffers.
TEST_F(MemoryBudget, AMappingThatMakesRoomForAChunkLeavesNothingBehind) {
  const auto path = real_file("data", 40_MiB);
  const Wish wish{"auto", "switch", path, 64_MiB};
  expect_within(wish, watch(wish));
}

}  // namespace
}  // namespace evenkeel

// Replaces GoogleTest's main: MemoryWatch starts this program again as the process that reads.
int main(int argc, char** argv) {
  if (evenkeel::WorkerSide::is_one()) return evenkeel::worker();
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
