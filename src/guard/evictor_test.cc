#include "guard/evictor.h"

#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/fault_hook.h"
#include "evenkeel/bytes.h"
#include "guard/test_mapping.h"

namespace evenkeel {
namespace {

// A mapping whose pages stay, and of which each part takes longer than a step of the evictor.
class SlowMapping : public GuardedMapping {
 public:
  SlowMapping(std::uint64_t bytes, int fd) : GuardedMapping(1, {0, bytes}, 0), fd_(fd) {}
  int descriptor() const override { return fd_; }
  bool still_there() const override { return true; }
  int let_go(AddressRange range) override {
    {
      std::lock_guard lock(mutex_);
      tries_.push_back({std::chrono::steady_clock::now(), range.begin});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(6));
    return 0;
  }
  int advise(AddressRange, int) override { return 0; }
  bool count_resident(AddressRange, AccessSample&) const override { return false; }

  // The most parts that were tried without a pause of this length.
  std::size_t tried_without_pause(std::chrono::milliseconds pause) const {
    std::lock_guard lock(mutex_);
    std::set<std::uint64_t> tried;
    std::optional<std::chrono::steady_clock::time_point> last;
    std::size_t most = 0;
    for (const auto& [when, part] : tries_) {
      if (last && when - *last >= pause) tried.clear();
      last = when;
      tried.insert(part);
      most = std::max(most, tried.size());
    }
    return most;
  }

 private:
  const int fd_;
  mutable std::mutex mutex_;
  std::vector<std::pair<std::chrono::steady_clock::time_point, std::uint64_t>> tries_;
};

// Changes every page of a mapping before the kernel counts dirty pages: none are ever written.
class AlwaysDirty : public sys::FaultHook {
 public:
  AlwaysDirty(const TestMapping& map, std::uint64_t words) : map_(map), words_(words) {
    sys::fault_hook = this;
  }
  ~AlwaysDirty() { sys::fault_hook = nullptr; }
  sys::Fault on(sys::Call call) override {
    const std::uint64_t step = sys::page_size() / 8;
    for (std::uint64_t i = 0; call == sys::Call::kCachestat && i < words_; i += step) map_[i] = i;
    return {};
  }

 private:
  const TestMapping& map_;
  const std::uint64_t words_;
};

// Also if not every part can be tried in one step. Otherwise the evictor would never pause.
TEST(Evictor, PausesIfNothingCanBeReleased) {
  const NumberFile file(16_MiB);
  if (!file.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  const TestMapping map(file);
  EXPECT_EQ(wrong_in_scan(map, file.words()), 0u);  // mapped pages cannot be dropped
  Evictor evictor({{.budget = 4_MiB, .access = GuardAccess::kLeave}, false},
                  std::make_unique<OwnActivity>());
  evictor.add(std::make_unique<SlowMapping>(file.bytes(), file.fd()), Fd());
  const auto paused = [&] {
    return std::ranges::any_of(evictor.report().failures, [](const std::string& one) {
      return one.starts_with("pages stay in the page cache after release");
    });
  };
  EXPECT_TRUE(until(paused, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }));
}

// It waits for the disk when all of them were tried. A part that waits for the disk is tried twice.
TEST(Evictor, TriesAllChangedPartsBeforeItWaitsForTheDisk) {
  const NumberFile file(16_MiB);
  if (!file.can_be_dropped()) GTEST_SKIP() << "the page cache cannot be dropped or counted here";
  const TestMapping map(file, PROT_READ | PROT_WRITE);
  const AlwaysDirty dirty(map, file.words());
  Evictor evictor({{.budget = 4_MiB, .access = GuardAccess::kLeave}, false},
                  std::make_unique<OwnActivity>());
  auto slow = std::make_unique<SlowMapping>(file.bytes(), file.fd());
  const SlowMapping& mapping = *slow;
  evictor.add(std::move(slow), Fd());
  // A step tries 4 of the 7 oldest parts of 2 MiB, which takes 24 ms. The pause is 4 times as long.
  const auto enough = [&] {
    return mapping.tried_without_pause(std::chrono::milliseconds(60)) >= 7;
  };
  EXPECT_TRUE(until(enough, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }));
}

class ForgottenFile : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Remembered, ForgottenFile, testing::Bool());

// Later mappings of the file would be advised to read at random, and never be switched back.
TEST_P(ForgottenFile, IsNoLongerRandom) {
  const NumberFile file(2_MiB, true);
  std::vector<bool> switches;
  {
    Evictor evictor({{.budget = 4_MiB}, GetParam()}, std::make_unique<OwnActivity>());
    const auto prepare = [&](GuardedFile& one) {
      one.on_switch([&](bool random) { switches.push_back(random); });
      one.reopen_by([] { return Fd(); });
      one.set_random(true);
    };
    auto mapping = std::make_unique<SlowMapping>(file.bytes(), -1);
    evictor.add(std::move(mapping), Fd(::open(file.path().c_str(), O_RDONLY)), prepare);
    evictor.remove(1);
    struct stat status;
    ASSERT_EQ(::fstat(file.fd(), &status), 0);
    std::unique_ptr<GuardedMapping> again = std::make_unique<SlowMapping>(file.bytes(), -1);
    EXPECT_FALSE(evictor.add_known(again, status.st_dev, status.st_ino));
  }
  EXPECT_EQ(switches, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace evenkeel
