#include "engine/arena.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace evenkeel {
namespace {

struct Held {
  std::uint64_t begin, size, ticket;
};

bool overlap(const Held& a, const Held& b) {
  return a.begin < b.begin + b.size && b.begin < a.begin + a.size;
}

RC_GTEST_PROP(RingArenaProperty, PiecesInUseNeverOverlapAndAnEmptyArenaTakesAnything, ()) {
  const auto unit = *rc::gen::element<std::uint64_t>(1, 2, 16);
  const auto capacity = unit * *rc::gen::inRange<std::uint64_t>(1, 200);
  const auto steps = *rc::gen::container<std::vector<std::pair<unsigned, unsigned>>>(
      rc::gen::pair(rc::gen::arbitrary<unsigned>(), rc::gen::arbitrary<unsigned>()));
  RingArena arena(capacity + unit - 1, unit);
  std::vector<Held> held;
  for (const auto& [what, number] : steps) {
    if (what % 2 == 0 && !held.empty()) {
      const auto which = held.begin() + static_cast<std::ptrdiff_t>(number % held.size());
      arena.give_back(which->ticket);
      held.erase(which);
      RC_ASSERT(arena.empty() == held.empty());
      continue;
    }
    const std::uint64_t size = 1 + number % capacity;
    const auto piece = arena.take(size);
    if (held.empty()) RC_ASSERT(piece.has_value());
    if (!piece) continue;
    const Held now{piece->begin, size, piece->ticket};
    RC_ASSERT(now.begin + now.size <= capacity);
    RC_ASSERT(now.begin % unit == 0u);
    RC_ASSERT(std::ranges::none_of(held, [&](const Held& old) { return overlap(old, now); }));
    held.push_back(now);
  }
}

TEST(RingArena, FillsToTheLastByte) {
  RingArena arena(100);
  const auto a = arena.take(60), b = arena.take(40);
  ASSERT_TRUE(a && b);
  EXPECT_FALSE(arena.take(1));
  arena.give_back(a->ticket);
  const auto c = arena.take(60);
  ASSERT_TRUE(c);
  EXPECT_EQ(c->begin, 0u);
  EXPECT_FALSE(arena.take(1));
}

TEST(RingArena, APieceDoneEarlyWaitsForTheOnesBeforeIt) {
  RingArena arena(100);
  const auto a = arena.take(50), b = arena.take(50);
  arena.give_back(b->ticket);
  EXPECT_FALSE(arena.take(10));
  arena.give_back(a->ticket);
  EXPECT_TRUE(arena.empty());
  EXPECT_TRUE(arena.take(100));
}

}  // namespace
}  // namespace evenkeel
