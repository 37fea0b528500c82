// labels: threads
#include "base/per_process.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/forked.h"

namespace evenkeel {
namespace {

int made = 0, destroyed = 0;

struct Counted {
  Counted() : number(++made) {}
  ~Counted() { ++destroyed; }
  const int number;
  int value = 0;
};

class PerProcessTest : public testing::Test {
 protected:
  PerProcessTest() { made = destroyed = 0; }
  static std::unique_ptr<Counted> make() { return std::make_unique<Counted>(); }
};

TEST_F(PerProcessTest, IsMadeOnceAndDestroyedWithItsOwner) {
  {
    PerProcess<Counted> state(make);
    EXPECT_EQ(&state.get(), &state.get());
    EXPECT_EQ(made, 1);
  }
  EXPECT_EQ(destroyed, 1);
}

TEST_F(PerProcessTest, AChildGetsItsOwnAndTheParentsIsUntouched) {
  PerProcess<Counted> state(make);
  state.get().value = 7;
  const std::string said = in_child([&] {
    Counted& own = state.get();
    const std::string first = std::to_string(own.number) + " " + std::to_string(own.value);
    own.value = 9;
    return first + (&state.get() == &own ? " kept" : " lost");
  });
  EXPECT_EQ(said, "2 0 kept");
  EXPECT_EQ(state.get().number, 1);
  EXPECT_EQ(state.get().value, 7);
}

TEST_F(PerProcessTest, AGrandchildGetsItsOwnToo) {
  PerProcess<Counted> state(make);
  const std::string said = in_child([&] {
    state.get();
    return in_child([&] { return std::to_string(state.get().number); });
  });
  EXPECT_EQ(said, "3");
}

TEST_F(PerProcessTest, AChildNeverDestroysTheParents) {
  const std::string said = in_child([&] {
    auto state = std::make_unique<PerProcess<Counted>>(make);
    const std::string untouched = in_child([&] {
      state.reset();
      return std::to_string(destroyed);
    });
    const std::string used = in_child([&] {
      state->get();
      state.reset();
      return std::to_string(destroyed);  // only its own was destroyed
    });
    state.reset();
    return untouched + " " + used + " " + std::to_string(destroyed);
  });
  EXPECT_EQ(said, "0 1 1");
}

TEST_F(PerProcessTest, AChildMayTryAgainWhenItsOwnCouldNotBeMade) {
  bool fail = false;
  PerProcess<Counted> state([&] {
    if (fail) throw std::runtime_error("no");
    return make();
  });
  const std::string said = in_child([&] {
    fail = true;
    try {
      state.get();
      return std::string("made");
    } catch (const std::runtime_error&) {
    }
    fail = false;
    return std::to_string(state.get().number);
  });
  EXPECT_EQ(said, "2");
}

TEST_F(PerProcessTest, ThreadsOfAChildAgreeOnOne) {
  std::atomic<int> numbers = 0;
  PerProcess<std::atomic<int>> state([&] { return std::make_unique<std::atomic<int>>(++numbers); });
  const std::string said = in_child([&] {
    std::vector<std::atomic<int>*> seen(4);
    std::vector<std::thread> threads;
    for (auto& place : seen) threads.emplace_back([&] { place = &state.get(); });
    for (std::thread& thread : threads) thread.join();
    return std::to_string(std::set(seen.begin(), seen.end()).size());
  });
  EXPECT_EQ(said, "1");
}

}  // namespace
}  // namespace evenkeel
