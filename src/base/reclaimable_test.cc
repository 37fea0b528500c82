// labels: threads
#include "base/reclaimable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "evenkeel/error.h"
#include "tests/forked.h"

namespace evenkeel {
namespace {

using testing::HasSubstr;
using testing::Not;

// Frees exactly what is requested.
class CountedCache final : public Reclaimer {
 public:
  explicit CountedCache(const Budget& budget) : memory_(budget, "cached blocks") {}
  static std::shared_ptr<CountedCache> make(const Budget& budget) {
    auto cache = std::make_shared<CountedCache>(budget);
    cache->memory_.serve(cache);
    return cache;
  }
  void reclaim(std::uint64_t bytes) noexcept override {
    ++calls_;
    memory_.shrink(std::min(bytes, memory_.bytes()));
  }
  ReclaimableMemory& memory() { return memory_; }
  int calls() const { return calls_; }

 private:
  ReclaimableMemory memory_;
  std::atomic<int> calls_ = 0;
};

TEST(ReclaimableMemory, CountsAsUsedAndAsLeft) {
  const Budget budget(1000);
  const auto cache = CountedCache::make(budget);
  EXPECT_TRUE(cache->memory().try_grow(700));
  EXPECT_EQ(budget.in_use(), 700u);
  EXPECT_EQ(budget.cached(), 700u);
  EXPECT_EQ(budget.left(), 1000u);
  EXPECT_TRUE(budget.fits_beside_reads(1000));
  EXPECT_THAT(budget.describe(), HasSubstr("700 B of it cached blocks"));
  EXPECT_FALSE(cache->memory().try_grow(301));
  cache->memory().shrink(700);
  EXPECT_EQ(budget.in_use(), 0u);
  EXPECT_THAT(budget.describe(), Not(HasSubstr("cached")));
}

TEST(ReclaimableMemory, GivesWayToReservationsOfEveryKind) {
  const Budget budget(1000);
  const auto cache = CountedCache::make(budget);
  ASSERT_TRUE(cache->memory().try_grow(1000));
  const Reservation a = budget.reserve(100, "a");
  EXPECT_EQ(cache->memory().bytes(), 900u);
  const auto b = budget.try_reserve(100, "b");
  ASSERT_TRUE(b);
  const auto c = budget.try_reserve_for_read(100, "c");
  ASSERT_TRUE(c);
  const Reservation d = budget.reserve_for_read(100, "d");
  EXPECT_EQ(cache->memory().bytes(), 600u);
  EXPECT_EQ(budget.in_use(), 1000u);
  EXPECT_EQ(budget.peak(), 1000u);
}

// Its memory is in use until the third call.
class BusyCache final : public Reclaimer {
 public:
  explicit BusyCache(const Budget& budget) : memory_(budget, "cached blocks") {}
  void reclaim(std::uint64_t bytes) noexcept override {
    if (++calls >= 3) memory_.shrink(std::min(bytes, memory_.bytes()));
  }
  ReclaimableMemory& memory() { return memory_; }
  std::atomic<int> calls = 0;

 private:
  ReclaimableMemory memory_;
};

TEST(ReclaimableMemory, IsAskedAgainWhereItIsInUse) {
  const Budget budget(1000);
  const auto cache = std::make_shared<BusyCache>(budget);
  cache->memory().serve(cache);
  ASSERT_TRUE(cache->memory().try_grow(1000));
  const Reservation rows = budget.reserve(400, "rows");
  EXPECT_EQ(cache->calls, 3);
  EXPECT_EQ(cache->memory().bytes(), 600u);
}

TEST(ReclaimableMemory, IsNotTouchedByWhatCannotFitAnyway) {
  const Budget budget(1000);
  const auto cache = CountedCache::make(budget);
  const Reservation held = budget.reserve(500, "rows");
  ASSERT_TRUE(cache->memory().try_grow(400));
  EXPECT_FALSE(budget.try_reserve(501, "b"));
  try {
    const Reservation none = budget.reserve(501, "b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("500 are in use (rows 500): 500 are left, of which 400 hold "
                          "cached blocks now"));
  }
  EXPECT_EQ(cache->calls(), 0);
  EXPECT_EQ(cache->memory().bytes(), 400u);
}

TEST(ReclaimableMemory, DoesNotGrowIntoMemoryThatComesAndGoes) {
  const Budget budget(1000);
  const auto cache = CountedCache::make(budget);
  budget.reserve(300, "results").release();
  EXPECT_FALSE(cache->memory().try_grow(701));
  EXPECT_TRUE(cache->memory().try_grow(700));
  budget.reserve(300, "results").release();
  EXPECT_EQ(cache->calls(), 0);
}

TEST(ReclaimableMemory, IsSharedByCachesInEqualParts) {
  const Budget budget(1000);
  const auto first = CountedCache::make(budget);
  ASSERT_TRUE(first->memory().try_grow(1000));
  const auto second = CountedCache::make(budget);
  while (second->memory().try_grow(100)) {
  }
  EXPECT_EQ(first->memory().bytes(), 500u);
  EXPECT_EQ(second->memory().bytes(), 500u);
  EXPECT_EQ(second->memory().most_bytes(), 500u);
}

TEST(ReclaimableMemory, OfACacheThatIsGoneIsFree) {
  const Budget budget(1000);
  auto cache = CountedCache::make(budget);
  ASSERT_TRUE(cache->memory().try_grow(1000));
  cache.reset();
  EXPECT_EQ(budget.in_use(), 0u);
  EXPECT_EQ(budget.cached(), 0u);
}

TEST(ReclaimableMemory, IsNotCountedInAChild) {
  const Budget budget(1000);
  const auto cache = CountedCache::make(budget);
  ASSERT_TRUE(cache->memory().try_grow(900));
  EXPECT_EQ(in_child([&] {
              const Reservation all = budget.reserve(1000, "child");
              std::string said = std::to_string(budget.in_use());
              said += cache->memory().try_grow(1) ? " grew" : "";
              said += cache->calls() > 0 ? " called" : "";
              cache->memory().shrink(900);
              return said + " " + std::to_string(budget.in_use());
            }),
            "1000 1000");
  EXPECT_EQ(budget.in_use(), 900u);
}

TEST(ReclaimableMemory, KeepsToTheLimitWithManyThreads) {
  const Budget budget(1000);
  const std::vector caches{CountedCache::make(budget), CountedCache::make(budget)};
  std::vector<std::thread> threads;
  std::atomic<int> refused = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        if (t % 2 == 0) {
          caches[static_cast<std::size_t>(t / 2)]->memory().try_grow(50);
        } else if (!budget.try_reserve(400, "rows")) {
          ++refused;  // two reservations of 400 fit together, whatever the caches hold
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);
  EXPECT_LE(budget.peak(), 1000u);
  EXPECT_EQ(budget.in_use(), budget.cached());
}

}  // namespace
}  // namespace evenkeel
