// labels: threads
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/fault_hook.h"
#include "evenkeel/bytes.h"
#include "evenkeel/prepare.h"
#include "format/test_files.h"
#include "prepare/hash_set.h"

namespace evenkeel {
namespace {

class DedupTest : public FileTest {
 protected:
  // Numbers i * i mod 1,009: each but 0 occurs many times.
  DedupOptions squares(std::uint32_t count) const {
    std::vector<std::uint32_t> values(count);
    for (std::uint32_t i = 0; i < count; ++i) values[i] = i * i % 1'009;
    DedupOptions options;
    options.input = {.paths = {write("in", {reinterpret_cast<const char*>(values.data()),
                                            values.size() * sizeof values[0]})},
                     .dtype = DType::of<std::uint32_t>()};
    options.output = path("out");
    options.budget = 16_MiB;
    return options;
  }
  std::vector<std::uint32_t> output() const {
    std::vector<std::uint32_t> values(std::filesystem::file_size(path("out")) / 4);
    std::ifstream(path("out"), std::ios::binary)
        .read(reinterpret_cast<char*>(values.data()),
              static_cast<std::streamsize>(values.size() * 4));
    return values;
  }
  static std::vector<std::uint32_t> wanted() {
    std::vector<std::uint32_t> firsts;
    for (std::uint32_t i = 0; i <= 504; ++i) firsts.push_back(i * i % 1'009);
    return firsts;
  }
};

TEST_F(DedupTest, KeepsTheFirstOfEach) {
  const DedupOptions options = squares(20'000);
  const WorkReport report = dedup(options);
  EXPECT_EQ(report.items, 505u);
  EXPECT_EQ(report.duplicates, 20'000u - 505);
  EXPECT_EQ(output(), wanted());
  EXPECT_LE(options.budget.peak(), 16_MiB);
  EXPECT_EQ(options.budget.in_use(), 0u);
}

// Kills the run at each rename. Checkpoints and the output are made by renames.
TEST_F(DedupTest, ContinuesFromEveryCheckpoint) {
  class Killed final : public sys::FaultHook {
   public:
    explicit Killed(int renames) : renames_(renames) { sys::fault_hook = this; }
    ~Killed() { sys::fault_hook = nullptr; }
    sys::Fault on(sys::Call call) override {
      if (call == sys::Call::kRename && ++seen_ == renames_) dead_ = true;
      const bool writes = call == sys::Call::kRename || call == sys::Call::kUnlink;
      return {.error = dead_ && writes ? EIO : 0};
    }
    bool dead() const { return dead_; }

   private:
    const int renames_;
    std::atomic<int> seen_ = 0;
    std::atomic<bool> dead_ = false;
  };
  DedupOptions options = squares(10'000);
  options.checkpoint_bytes = 16'000;
  int killed = 0;
  for (bool done = false; !done; ++killed) {
    std::filesystem::remove(path("out"));
    options.resume = false;
    {
      const Killed kill(killed + 1);
      try {
        dedup(options);
      } catch (const Error&) {
        EXPECT_TRUE(kill.dead());
      }
      done = !kill.dead();
    }
    options.resume = true;
    if (!done) dedup(options);
    ASSERT_EQ(output(), wanted()) << killed;
  }
  EXPECT_GT(killed, 8);
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(path(""))) {
    files += file.path().filename() == "in" || file.path().filename() == "out" ? 0 : 1;
  }
  EXPECT_EQ(files, 0u);
}

TEST_F(DedupTest, OtherWorkIsNotResumed) {
  DedupOptions options = squares(20'000);
  options.checkpoint_bytes = 16'000;
  int calls = 0;
  options.progress = [&](const WorkProgress&) {
    if (++calls == 3) throw std::runtime_error("enough");
  };
  EXPECT_THROW(dedup(options), std::runtime_error);
  options.progress = {};
  options.resume = true;
  DedupOptions other = options;
  other.input.shape = {-1, 2};
  EXPECT_THROW(dedup(other), Error);
  EXPECT_TRUE(dedup(options).resumed);
  EXPECT_EQ(output(), wanted());
}

TEST_F(DedupTest, AScratchFileThatWasChangedIsAnError) {
  DedupOptions options = squares(20'000);
  options.progress = [](const WorkProgress& now) {
    if (now.step == "finding duplicates") throw std::runtime_error("enough");
  };
  EXPECT_THROW(dedup(options), std::runtime_error);
  {
    std::fstream scratch(path("out.dedup.partial"),
                         std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(scratch.is_open());
    for (int i = 0; i < 20'000; ++i) {  // the numbers of items, each after its hash
      scratch.seekp(24 * i + 16);
      scratch.write("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    }
  }
  options.progress = {};
  options.resume = true;
  try {
    dedup(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
  }
}

TEST(HashSet, KnowsWhatItHas) {
  const Budget budget(1_MiB);
  HashSet set(budget, 64_KiB);
  EXPECT_TRUE(set.add({0, 0}));
  EXPECT_FALSE(set.add({0, 0}));
  for (std::uint64_t i = 1; i <= 3'000; ++i) EXPECT_TRUE(set.add({i, i << 40}));
  for (std::uint64_t i = 1; i <= 3'000; ++i) EXPECT_FALSE(set.add({i, i << 40}));
  EXPECT_FALSE(set.full());
  for (std::uint64_t i = 0; !set.full(); ++i) set.add({i, ~i});
  set.clear();
  EXPECT_TRUE(set.add({0, 0}));
  EXPECT_TRUE(set.add({1, 1 << 20}));
}

}  // namespace
}  // namespace evenkeel
