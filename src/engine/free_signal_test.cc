// labels: threads
#include "engine/free_signal.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace evenkeel {
namespace {

// Two mutexes; threads need either of them.
struct TwoMutexes {
  Mutex* take_free() NO_THREAD_SAFETY_ANALYSIS {
    for (Mutex& one : mutexes) {
      if (one.try_lock()) return &one;
    }
    return nullptr;
  }
  Mutex* take() {
    Mutex* const taken = take_free();
    return taken ? taken : signal.wait([this] { return take_free(); });
  }
  void give_back(Mutex* one) NO_THREAD_SAFETY_ANALYSIS {
    one->unlock();
    signal.notify();
  }
  std::array<Mutex, 2> mutexes;
  FreeSignal signal;
};

TEST(FreeSignal, WhoWaitsGetsTheOneThatIsFree) {
  for (const std::size_t kept : {0, 1}) {
    TwoMutexes two;
    std::array<Mutex*, 2> taken = {two.take(), two.take()};
    EXPECT_NE(taken[0], taken[1]);
    std::array<Mutex*, 3> got = {};
    std::vector<std::thread> threads;
    for (Mutex*& one : got) {
      threads.emplace_back([&] {
        one = two.take();
        two.give_back(one);
      });
    }
    while (two.signal.waiting() < got.size()) std::this_thread::yield();
    two.give_back(taken[1 - kept]);
    for (std::thread& thread : threads) thread.join();  // the other one stays locked
    for (const Mutex* one : got) EXPECT_EQ(one, taken[1 - kept]);
    two.give_back(taken[kept]);
    EXPECT_EQ(two.signal.waiting(), 0u);
  }
}

TEST(FreeSignal, NobodyIsForgotten) {
  constexpr int kThreads = 6, kRounds = 2000;
  TwoMutexes two;
  std::array<int, 2> uses = {};  // each guarded by its mutex
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        Mutex* const one = two.take();
        ++uses[static_cast<std::size_t>(one - two.mutexes.data())];
        if (round % 8 == 0) std::this_thread::yield();
        two.give_back(one);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(uses[0] + uses[1], kThreads * kRounds);
}

}  // namespace
}  // namespace evenkeel
