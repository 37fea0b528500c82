// labels: threads reads
// One array, used by many threads at once: every result must be right.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/counting_file.h"

// ThreadSanitizer does not see liburing map and unmap its rings. A new ring at the address of a
// closed one looks like one that two threads share.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:io_uring_\nrace:uring_queue.cc";
}

namespace evenkeel {
namespace {

constexpr std::uint64_t kThreadColumns = 8, kThreadRows = 400'000;  // 12 MiB

class ThreadsTest : public testing::Test {
 protected:
  Array open(const Budget& budget, EngineKind engine) const {
    return Array::open(counting_file(folder_, "numbers", kThreadRows * kThreadColumns),
                       counted(kThreadColumns, budget, engine));
  }

  // Runs `work` in several threads, several times in each, and counts how often it returns false.
  template <class Work>
  static int wrong_answers(int threads, int times, Work work) {
    std::atomic<int> wrong = 0;
    std::vector<std::thread> running;
    for (int number = 0; number < threads; ++number) {
      running.emplace_back([&, number] {
        std::mt19937_64 random(static_cast<std::uint64_t>(number));
        for (int i = 0; i < times; ++i) {
          try {
            if (!work(number, random)) ++wrong;
          } catch (const std::exception& error) {
            ADD_FAILURE() << error.what();
          }
        }
      });
    }
    for (auto& thread : running) thread.join();
    return wrong;
  }

  static bool gather_is_right(const Array& array, std::mt19937_64& random) {
    std::vector<std::uint64_t> rows(1 + random() % 300);
    for (auto& row : rows) row = random() % kThreadRows;
    return gathered(array, rows) == rows_of_counting(rows, kThreadColumns);
  }
  static bool crops_are_right(const Array& array, std::mt19937_64& random) {
    std::vector<std::uint64_t> starts(1 + random() % 30), rows;
    const std::uint64_t each = 1 + random() % 50;
    for (auto& start : starts) {
      start = random() % (kThreadRows - each);
      for (std::uint64_t i = 0; i < each; ++i) rows.push_back(start + i);
    }
    Numbers out(rows.size() * kThreadColumns);
    array.crops(starts, each, std::as_writable_bytes(std::span(out)));
    return out == rows_of_counting(rows, kThreadColumns);
  }
  static bool chunks_are_right(const Array& array, std::mt19937_64& random) {
    const std::uint64_t rows = 500 + random() % 1000;
    Chunks chunks = array.chunks(rows, random() % 2 ? shuffled(random()) : sequential());
    chunks.seek(random() % chunks.size());
    int left = 5;
    for (const Chunk& chunk : chunks) {
      if (!counts_on(chunk)) return false;
      if (--left == 0) break;
    }
    return true;
  }

  TempFolder folder_;
};

class Threads : public ThreadsTest, public testing::WithParamInterface<EngineKind> {};

TEST_P(Threads, AllCallsFromEightThreadsAtOnce) {
  const Array array = open(8_MiB, GetParam());
  EXPECT_EQ(wrong_answers(8, 10,
                          [&](int number, std::mt19937_64& random) {
                            if (number % 3 == 0) return gather_is_right(array, random);
                            if (number % 3 == 1) return crops_are_right(array, random);
                            return chunks_are_right(array, random);
                          }),
            0);
  EXPECT_LE(array.budget().peak(), 8_MiB);
}

TEST_P(Threads, OpenedAndClosedFromEightThreadsUnderOneBudget) {
  const Budget budget(256_MiB);
  open(16_MiB, GetParam());  // makes the file
  EXPECT_EQ(wrong_answers(8, 5,
                          [&](int, std::mt19937_64& random) {
                            Array array = Array::open(folder_.path("numbers"),
                                                      counted(kThreadColumns, budget, GetParam()));
                            const bool right = gather_is_right(array, random);
                            array.close();
                            return right;
                          }),
            0);
  EXPECT_EQ(budget.in_use(), 0u);
  EXPECT_LE(budget.peak(), budget.limit());
}

// One thread requests the memory of the mapping while others read through the mapping. Once it has
// succeeded, it reads like the others.
TEST_F(ThreadsTest, TheEngineChangesUnderReaders) {
  for (int round = 0; round < 3; ++round) {
    const Array array = open(18_MiB, EngineKind::kAuto);
    ASSERT_EQ(array.engine().chosen, EngineKind::kMap);
    EXPECT_EQ(wrong_answers(8, 20,
                            [&](int number, std::mt19937_64& random) {
                              if (number > 0 || array.engine().chosen != EngineKind::kMap) {
                                return gather_is_right(array, random);
                              }
                              try {
                                return counts_on(*array.chunks(150'000, shuffled(1)).begin());
                              } catch (const Error& error) {  // readers still held the mapping
                                return error.kind() == ErrorKind::kBudget;
                              }
                            }),
              0);
    EXPECT_LE(array.budget().peak(), 18_MiB);
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, Threads, testing::ValuesIn(kAllEngines),
                         [](const auto& tested) { return std::string(engine_name(tested.param)); });

}  // namespace
}  // namespace evenkeel
