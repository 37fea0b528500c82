// labels: threads
#include "engine/free_signal.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

namespace evenkeel {
namespace {

// Two of a thing, of which threads need one.
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
  for (const std::size_t held_on : {0, 1}) {
    TwoMutexes two;
    std::array<Mutex*, 2> held = {two.take(), two.take()};
    EXPECT_NE(held[0], held[1]);
    std::array<Mutex*, 3> got = {};
    std::vector<std::thread> threads;
    for (Mutex*& one : got) {
      threads.emplace_back([&] {
        one = two.take();
        two.give_back(one);
      });
    }
    while (two.signal.waiting() < got.size()) std::this_thread::yield();
    two.give_back(held[1 - held_on]);
    for (std::thread& thread : threads) thread.join();  // the other one stays held
    for (const Mutex* one : got) EXPECT_EQ(one, held[1 - held_on]);
    two.give_back(held[held_on]);
    EXPECT_EQ(two.signal.waiting(), 0u);
  }
}

TEST(FreeSignal, NobodyIsForgotten) {
  constexpr int kThreads = 6, kRounds = 2000;
  TwoMutexes two;
  std::array<int, 2> uses = {};  // each under its mutex
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
