// labels: threads
#include "cache/block_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "cache/repeat_detector.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kTestBlock = 1000;

// The bytes of a block contain its number.
std::vector<std::byte> block_of(std::uint64_t number) {
  std::vector<std::byte> bytes(kTestBlock);
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) std::memcpy(&bytes[i], &number, 8);
  return bytes;
}

void put(BlockCache& cache, std::uint64_t number) {
  const auto bytes = block_of(number);
  cache.put(number, bytes.data(), bytes.size());
}

// Returns -1 if the block is not cached, 0 if it is wrong, 1 if it is right.
int look(BlockCache& cache, std::uint64_t number) {
  std::vector<std::byte> bytes(kTestBlock);
  if (!cache.get(number, 0, kTestBlock, bytes.data())) return -1;
  return bytes == block_of(number) ? 1 : 0;
}

TEST(BlockCache, GivesBackWhatWasPut) {
  const Budget budget(16_MiB);
  const auto cache = BlockCache::make(budget, kTestBlock, 8_MiB);
  EXPECT_EQ(look(*cache, 5), -1);
  EXPECT_EQ(budget.in_use(), 0u);
  for (std::uint64_t i = 0; i < 1000; ++i) put(*cache, i * 1'000'003);
  for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(look(*cache, i * 1'000'003), 1);
  EXPECT_EQ(look(*cache, 7), -1);
  EXPECT_EQ(cache->blocks(), 1000u);
  EXPECT_EQ(budget.cached(), cache->bytes());
  std::uint64_t word = 0;
  EXPECT_TRUE(cache->get(1'000'003, 16, 8, reinterpret_cast<std::byte*>(&word)));
  EXPECT_EQ(word, 1'000'003u);
}

TEST(BlockCache, TellsQuicklyWhatIsHere) {
  const Budget budget(16_MiB);
  const auto cache = BlockCache::make(budget, kTestBlock, 8_MiB);
  cache->prefetch(1);  // the cache is empty
  EXPECT_EQ(cache->find(1), nullptr);
  for (std::uint64_t i = 0; i < 1000; ++i) put(*cache, i);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    cache->prefetch(i);
    const std::byte* const place = cache->find(i);
    ASSERT_NE(place, nullptr);
    EXPECT_EQ(std::memcmp(place, block_of(i).data(), kTestBlock), 0);
  }
  EXPECT_EQ(cache->find(1'000'000), nullptr);
  cache->reclaim(UINT64_MAX);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    cache->prefetch(i);
    EXPECT_EQ(cache->find(i), nullptr);
  }
}

TEST(BlockCache, KeepsToItsLimitAndToTheBudget) {
  const Budget budget(4_MiB);
  const Reservation rest = budget.reserve(1_MiB, "rest");
  const auto capped = BlockCache::make(budget, kTestBlock, 1_MiB);
  for (std::uint64_t i = 0; i < 20'000; ++i) put(*capped, i);
  EXPECT_LE(budget.cached(), 1_MiB);
  EXPECT_GT(budget.cached(), 900_KiB);
  const auto open = BlockCache::make(budget, kTestBlock, UINT64_MAX);
  for (std::uint64_t i = 0; i < 20'000; ++i) put(*open, i);
  EXPECT_LE(budget.in_use(), 4_MiB);
  EXPECT_GT(open->blocks(), 1000u);
}

TEST(BlockCache, FreesMemoryThatIsAskedForAndKeepsTheRest) {
  const Budget budget(8_MiB);
  const auto cache = BlockCache::make(budget, kTestBlock, UINT64_MAX);
  for (std::uint64_t i = 0; i < 20'000; ++i) put(*cache, i);
  std::set<std::uint64_t> cached;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    if (look(*cache, i) == 1) cached.insert(i);
  }
  EXPECT_EQ(cached.size(), cache->blocks());
  const std::uint64_t before = cache->blocks();
  const Reservation half = budget.reserve(4_MiB, "half");
  EXPECT_LE(budget.in_use(), 8_MiB);
  EXPECT_LT(cache->blocks(), before * 6 / 10);
  EXPECT_GT(cache->blocks(), before * 4 / 10);
  std::uint64_t left = 0;
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const int found = look(*cache, i);
    EXPECT_NE(found, 0);
    if (found == 1) {
      EXPECT_TRUE(cached.contains(i));
      ++left;
    }
  }
  EXPECT_EQ(left, cache->blocks());
  const Reservation all = budget.reserve(4_MiB, "the other half");
  EXPECT_EQ(cache->blocks(), 0u);
  EXPECT_EQ(look(*cache, 1), -1);
}

TEST(BlockCache, WhatIsUsedMoreSurvivesAScanAndTheLossOfHalf) {
  const Budget budget(8_MiB);
  const auto cache = BlockCache::make(budget, kTestBlock, UINT64_MAX);
  for (int round = 0; round < 4; ++round) {
    for (std::uint64_t i = 0; i < 500; ++i) {
      if (look(*cache, i) == -1) put(*cache, i);
    }
  }
  for (std::uint64_t i = 0; i < 30'000; ++i) put(*cache, 1'000'000 + i);
  const Reservation half = budget.reserve(4_MiB, "half");
  int hot = 0;
  for (std::uint64_t i = 0; i < 500; ++i) hot += look(*cache, i) == 1;
  EXPECT_GT(hot, 480);
}

TEST(BlockCache, ALoopThatIsLargerThanTheCacheHits) {
  const Budget budget(8_MiB);
  const auto cache = BlockCache::make(budget, kTestBlock, 4_MiB);
  for (std::uint64_t i = 0; i < 20'000; ++i) put(*cache, i);
  const std::uint64_t loop = cache->blocks() * 11 / 10;
  std::uint64_t hits = 0, looks = 0;
  const auto fresh = BlockCache::make(budget, kTestBlock, 4_MiB);
  for (int round = 0; round < 10; ++round) {
    for (std::uint64_t i = 0; i < loop; ++i) {
      const int found = look(*fresh, i);
      if (found == -1) put(*fresh, i);
      hits += found == 1 && round > 0;
      looks += round > 0;
    }
  }
  EXPECT_GT(hits, looks * 3 / 4);
}

TEST(BlockCache, AnswersRightWhileThreadsReadWriteAndReclaim) {
  const Budget budget(4_MiB);
  const auto cache = BlockCache::make(budget, kTestBlock, UINT64_MAX);
  std::atomic<int> wrong = 0, right = 0;
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 4000; ++i) {
        const std::uint64_t number = random() % 4000;
        const int found = look(*cache, number);
        wrong += found == 0;
        right += found == 1;
        if (found == -1) put(*cache, number);
        if (i % 256 == 0) budget.reserve(2_MiB / 4, "a moment");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0);
  EXPECT_LE(budget.peak(), 4_MiB);
}

TEST(RepeatDetector, SeesNoRepeatsInAScanOfAnyLength) {
  RepeatDetector detector(1'000'000);
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    ASSERT_FALSE(detector.repeats(i, 1, [] { return 100'000u; }));
  }
}

TEST(RepeatDetector, SeesASecondPassIfTheCacheHoldsAPartOfIt) {
  const auto passes_until = [](std::uint64_t cache_blocks) {
    RepeatDetector detector(100'000);
    for (std::uint64_t i = 0; i < 300'000; ++i) {
      if (detector.repeats(i % 100'000, 1, [=] { return cache_blocks; })) return i / 100'000;
    }
    return std::uint64_t{99};
  };
  EXPECT_EQ(passes_until(50'000), 1u);
  EXPECT_EQ(passes_until(10'000), 1u);
  EXPECT_EQ(passes_until(1'000), 99u);  // one hit in a hundred is not worth it
}

TEST(RepeatDetector, CountsAllBlocksOfALongRead) {
  // A loop over 100'000 reads of three blocks each: a cache of 20'000 blocks holds a fifteenth.
  RepeatDetector detector(300'000);
  for (std::uint64_t i = 0; i < 300'000; ++i) {
    ASSERT_FALSE(detector.repeats(i % 100'000 * 3, 3, [] { return 20'000u; }));
  }
}

TEST(RepeatDetector, IsNotFooledByChance) {
  // One read in 25 repeats soon: a rate of 4 %, in a million random samples.
  RepeatDetector detector(2'000);
  std::mt19937_64 random(1);
  std::uint64_t next = 1'000'000;
  for (int i = 0; i < 1'000'000; ++i) {
    const std::uint64_t block = random() % 25 == 0 ? next - 1 - random() % 100 : next++;
    ASSERT_FALSE(detector.repeats(block, 1, [] { return 1'000u; })) << i;
  }
}

TEST(RepeatDetector, SeesAHotSet) {
  RepeatDetector detector(1'000'000);
  std::mt19937_64 random(1);
  std::uint64_t reads = 0;
  for (; reads < 1'000'000; ++reads) {
    const std::uint64_t block = random() % 10 < 9 ? random() % 50'000 : random() % 1'000'000;
    if (detector.repeats(block, 1, [] { return 200'000u; })) break;
  }
  EXPECT_LT(reads, 200'000u);
}

}  // namespace
}  // namespace evenkeel
