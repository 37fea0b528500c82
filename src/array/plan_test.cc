#include "array/plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "base/checked.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kFileBytes = 40'000;
constexpr std::byte kUntouched{0xee};

std::byte content(std::uint32_t file, std::uint64_t offset) {
  return static_cast<std::byte>(offset * 7 + (offset >> 8) * 13 + file * 101);
}

struct Wish {
  std::uint32_t file;
  std::uint64_t offset, length;
};

// Ranges that are wanted, the limits they are planned with, and the places their bytes go to.
class Planned {
 public:
  Planned(std::vector<Wish> wishes, EngineLimits limits, Scatter scatter, bool roomy)
      : wishes_(std::move(wishes)), limits_(limits), scatter_(scatter) {
    // Each wish has its own block with room on both sides, so that stray writes are detected.
    for (const Wish& wish : wishes_) {
      const std::uint64_t span =
          scatter.unit == 0 ? wish.length : wish.length / scatter.unit * scatter.stride;
      const std::uint64_t begin =
          round_up(size_, limits.alignment) + limits.alignment + wish.offset % limits.alignment;
      places_.push_back({begin, span});
      size_ = begin + span + limits.alignment;
    }
    room_.assign(size_ + limits.alignment, kUntouched);
    void* base = room_.data();
    std::size_t space = room_.size();
    base_ = static_cast<std::byte*>(std::align(limits.alignment, size_, base, space));
    plan.clear(scatter);
    for (std::size_t i = 0; i < wishes_.size(); ++i) {
      plan.add({wishes_[i].file, wishes_[i].offset, wishes_[i].length, base_ + places_[i].begin});
    }
    plan.build(limits, roomy);
    Extent extent;
    while (plan.next(extent, kTagBase)) extents.push_back(extent);
  }

  std::uint64_t run_of(const Extent& extent) const { return extent.tag - kTagBase; }

  static std::vector<std::byte> bytes_of(const Extent& extent) {
    std::vector<std::byte> bytes(extent.length);
    for (std::uint64_t i = 0; i < extent.length; ++i) {
      bytes[i] = content(extent.file, extent.offset + i);
    }
    return bytes;
  }

  void deliver(const Extent& extent) const {
    plan.deliver(extent, run_of(extent), bytes_of(extent).data());
  }
  // Acts like an engine that reads in place.
  void deliver_in_place(const Extent& extent) const {
    if (!extent.into) return deliver(extent);
    std::ranges::copy(bytes_of(extent), extent.into);
    plan.deliver(extent, run_of(extent), extent.into);
  }
  // Acts like an engine that copies the bytes to their target.
  void lay_at_target(const Extent& extent) const {
    const auto target = plan.target(extent, run_of(extent));
    if (!target) return deliver(extent);
    const auto bytes = bytes_of(extent);
    std::memcpy(target->out, bytes.data() + (target->offset - extent.offset), target->length);
    plan.deliver(extent, run_of(extent), nullptr);
  }

  // The expected memory: every wish is fulfilled, and nothing else was touched.
  std::vector<std::byte> fulfilled() const {
    std::vector<std::byte> all(size_, kUntouched);
    for (std::size_t i = 0; i < wishes_.size(); ++i) {
      for (std::uint64_t k = 0; k < wishes_[i].length; ++k) {
        const std::uint64_t at =
            scatter_.unit == 0 ? k : k / scatter_.unit * scatter_.stride + k % scatter_.unit;
        all[places_[i].begin + at] = content(wishes_[i].file, wishes_[i].offset + k);
      }
    }
    return all;
  }
  std::vector<std::byte> held() const { return {base_, base_ + size_}; }

  // Checks only the wishes, not the room around them.
  bool wishes_hold() const {
    const auto now = held(), wanted = fulfilled();
    return std::ranges::all_of(places_, [&](const Place& place) {
      const auto at = static_cast<std::ptrdiff_t>(place.begin);
      const auto end = at + static_cast<std::ptrdiff_t>(place.span);
      return std::equal(now.begin() + at, now.begin() + end, wanted.begin() + at);
    });
  }
  // Whether [begin, begin+length) is inside the room of one wish: its bytes and the overhang.
  bool is_inside_a_room(const std::byte* begin, std::uint64_t length) const {
    return std::ranges::any_of(places_, [&](const Place& place) {
      const std::byte* out = base_ + place.begin;
      return begin > out - limits_.alignment &&
             begin + length < out + place.span + limits_.alignment;
    });
  }

  // A slow version of build and next: marks wanted blocks, fills small gaps, cuts by length.
  std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> expected_extents() const {
    std::map<std::uint32_t, std::vector<bool>> wanted;
    const std::uint64_t blocks = 2 * kFileBytes / limits_.alignment + 2;
    for (const Wish& wish : wishes_) {
      auto& file = wanted[wish.file];
      file.resize(blocks);
      for (std::uint64_t at = wish.offset; at < wish.offset + wish.length; ++at) {
        file[at / limits_.alignment] = true;
      }
    }
    std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> all;
    for (auto& [file, block] : wanted) {
      for (std::uint64_t i = 0, gap = blocks; i < blocks; ++i) {
        if (!block[i]) {
          if (gap < blocks) ++gap;
          continue;
        }
        if (gap < blocks && gap * limits_.alignment <= limits_.merge_gap) {
          std::fill(block.begin() + static_cast<std::ptrdiff_t>(i - gap),
                    block.begin() + static_cast<std::ptrdiff_t>(i), true);
        }
        gap = 0;
      }
      for (std::uint64_t i = 0; i < blocks;) {
        if (!block[i]) {
          ++i;
          continue;
        }
        std::uint64_t end = i;
        while (end < blocks && block[end]) ++end;
        for (std::uint64_t at = i * limits_.alignment; at < end * limits_.alignment;) {
          std::uint64_t length = std::min(end * limits_.alignment - at, limits_.max_request);
          if (limits_.block > 0) length = std::min(length, limits_.block - at % limits_.block);
          all.emplace_back(file, at, length);
          at += length;
        }
        i = end;
      }
    }
    return all;
  }

  Plan plan;
  std::vector<Extent> extents;
  static constexpr std::uint64_t kTagBase = std::uint64_t{5} << 32;

 private:
  struct Place {
    std::uint64_t begin, span;
  };
  const std::vector<Wish> wishes_;
  const EngineLimits limits_;
  const Scatter scatter_;
  std::vector<Place> places_;
  std::uint64_t size_ = 0;
  std::vector<std::byte> room_;
  std::byte* base_ = nullptr;
};

EngineLimits any_limits() {
  EngineLimits limits;
  limits.alignment = std::uint64_t{1} << *rc::gen::inRange(0, 13);
  limits.max_request = limits.alignment * *rc::gen::inRange<std::uint64_t>(1, 6);
  limits.merge_gap = *rc::gen::element<std::uint64_t>(0, 1, 511, 512, 4096, 10'000);
  limits.block = limits.alignment * *rc::gen::element<std::uint64_t>(0, 0, 1, 3, 10);
  if (*rc::gen::inRange(0, 5) == 0) limits.block = *rc::gen::inRange<std::uint64_t>(1, 10'000);
  return limits;
}

Scatter any_scatter() {
  const auto unit = *rc::gen::element<std::uint64_t>(0, 0, 1, 2, 3, 8);
  return {unit, unit == 0 ? 0 : unit + *rc::gen::inRange<std::uint64_t>(0, 20)};
}

// Ranges that overlap, repeat, touch or are far apart, in several files.
std::vector<Wish> any_wishes(std::uint64_t unit) {
  const std::uint64_t step = std::max<std::uint64_t>(unit, 1);
  const auto longest = *rc::gen::element<std::uint64_t>(1, 20, 700, 9000);
  std::vector<Wish> wishes;
  for (auto count = *rc::gen::inRange(0, 30); count > 0; --count) {
    Wish wish;
    wish.file = *rc::gen::inRange<std::uint32_t>(0, 3);
    wish.length = *rc::gen::inRange<std::uint64_t>(1, longest + 1) * step;
    wish.length = std::min(wish.length, kFileBytes / step * step);
    wish.offset = *rc::gen::inRange<std::uint64_t>(0, kFileBytes - wish.length + 1);
    wishes.push_back(wish);
    if (*rc::gen::inRange(0, 5) == 0) wishes.push_back(wish);
  }
  return wishes;
}

std::vector<Extent> shuffled_extents(const Planned& planned) {
  std::vector<Extent> extents = planned.extents;
  std::shuffle(extents.begin(), extents.end(), std::mt19937(*rc::gen::arbitrary<unsigned>()));
  return extents;
}

RC_GTEST_PROP(PlanProperty, EveryWantedByteReachesItsPlaceInWhateverOrderTheyArrive, ()) {
  const Scatter scatter = any_scatter();
  const Planned planned(any_wishes(scatter.unit), any_limits(), scatter, false);
  for (const Extent& extent : shuffled_extents(planned)) planned.deliver(extent);
  RC_ASSERT(planned.held() == planned.fulfilled());
}

RC_GTEST_PROP(PlanProperty, LayingBytesAtTheirTargetIsTheSameAsDelivering, ()) {
  const Scatter scatter = any_scatter();
  const Planned planned(any_wishes(scatter.unit), any_limits(), scatter, false);
  for (const Extent& extent : shuffled_extents(planned)) planned.lay_at_target(extent);
  RC_ASSERT(planned.held() == planned.fulfilled());
}

// Large rows that lie side by side are one run, but a request for one of them has a target.
TEST(Plan, ARequestForOnePieceOfARunHasATarget) {
  const Planned rows({{0, 0, 4096}, {0, 4096, 4096}, {0, 8192, 4096}}, {1, 4096, 512}, {}, false);
  ASSERT_EQ(rows.extents.size(), 3u);
  for (const Extent& extent : rows.extents) {
    const auto target = rows.plan.target(extent, rows.run_of(extent));
    ASSERT_TRUE(target);
    EXPECT_EQ(target->offset, extent.offset);
    EXPECT_EQ(target->length, extent.length);
  }
  const Planned shared({{0, 0, 1000}, {0, 1100, 1000}}, {1, 4096, 512}, {}, false);
  ASSERT_EQ(shared.extents.size(), 1u);
  EXPECT_FALSE(shared.plan.target(shared.extents[0], shared.run_of(shared.extents[0])));
}

RC_GTEST_PROP(PlanProperty, RequestsAreTheWantedBlocksWithSmallGapsFilled, ()) {
  const Scatter scatter = any_scatter();
  const Planned planned(any_wishes(scatter.unit), any_limits(), scatter, false);
  std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> got;
  std::uint64_t bytes = 0;
  for (const Extent& extent : planned.extents) {
    got.emplace_back(extent.file, extent.offset, extent.length);
    bytes += extent.length;
    RC_ASSERT(extent.into == nullptr);
    RC_ASSERT(planned.run_of(extent) < planned.plan.runs());
  }
  RC_ASSERT(got == planned.expected_extents());
  RC_ASSERT(planned.plan.request_bytes() == bytes);
}

// With one wish, as in practice, and with several, some of which share a block.
RC_GTEST_PROP(PlanProperty, ReadingInPlaceStaysInsideTheOverhang, (bool alone)) {
  auto wishes = any_wishes(0);
  if (alone && !wishes.empty()) wishes.erase(wishes.begin() + 1, wishes.end());
  EngineLimits limits = any_limits();
  limits.block -= limits.block % limits.alignment;  // only `decode` has others
  const Planned planned(wishes, limits, {}, true);
  for (const Extent& extent : shuffled_extents(planned)) {
    if (alone) RC_ASSERT(extent.into != nullptr);
    if (extent.into) {
      RC_ASSERT(reinterpret_cast<std::uintptr_t>(extent.into) % limits.alignment == 0u);
      RC_ASSERT(planned.is_inside_a_room(extent.into, extent.length));
    }
    planned.deliver_in_place(extent);
  }
  RC_ASSERT(planned.wishes_hold());
}

RC_GTEST_PROP(PlanProperty, AnEngineMayIgnoreThePlaceItWasGiven, ()) {
  const Planned planned(any_wishes(0), any_limits(), {}, true);
  for (const Extent& extent : shuffled_extents(planned)) planned.deliver(extent);
  RC_ASSERT(planned.held() == planned.fulfilled());
}

TEST(Plan, ARequestEndsWithItsBlock) {
  const Planned planned({{0, 90, 250}}, {1, 1 << 20, 0, 100}, {}, false);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> got;
  for (const Extent& extent : planned.extents) got.emplace_back(extent.offset, extent.length);
  const decltype(got) expected{{90, 10}, {100, 100}, {200, 100}, {300, 40}};
  EXPECT_EQ(got, expected);
}

TEST(Plan, PiecesThatFollowOneAnotherHaveATargetTogether) {
  std::byte out[1000] = {};
  const auto target = [&](std::vector<Piece> pieces, const EngineLimits& limits) {
    Plan plan;
    plan.clear({});
    for (const Piece& piece : pieces) plan.add(piece);
    plan.build(limits, false);
    Extent extent;
    EXPECT_TRUE(plan.next(extent, 0));
    const auto found = plan.target(extent, 0);
    return found ? std::tuple(found->offset, found->length, found->out - out)
                 : std::tuple<std::uint64_t, std::uint64_t, std::ptrdiff_t>(0, 0, -1);
  };
  const Piece first{0, 600, 8, out + 100}, second{0, 608, 8, out + 108},
      third{0, 616, 9, out + 116};
  EXPECT_EQ(target({third, first, second}, {512, 1024, 0}), std::tuple(600, 25, 100));
  EXPECT_EQ(target({first, second, third}, {4, 12, 0}), std::tuple(600, 12, 100));
  EXPECT_EQ(target({first, {0, 608, 8, out}, third}, {512, 1024, 0}), std::tuple(0, 0, -1));
  EXPECT_EQ(target({first, third}, {512, 1024, 100}), std::tuple(0, 0, -1));
  EXPECT_EQ(target({first, first, second}, {512, 1024, 0}), std::tuple(0, 0, -1));
}

TEST(Plan, BytesThatAreInTheirPlaceAreNotTouched) {
  std::byte out[20] = {};
  Plan plan;
  plan.clear({});
  plan.add({0, 600, 8, out});
  plan.add({0, 608, 8, out + 8});
  plan.build({1, 1024, 0}, false);
  Extent extent;
  ASSERT_TRUE(plan.next(extent, 0));
  out[3] = std::byte{42};
  plan.deliver(extent, 0, out);
  EXPECT_EQ(out[3], std::byte{42});
  const std::byte other[16] = {};
  plan.deliver(extent, 0, other);
  EXPECT_EQ(out[3], std::byte{0});
}

TEST(Plan, APieceThatContinuesTheLastOneExtendsIt) {
  std::byte out[100] = {};
  const auto pieces = [&](Scatter scatter, const Piece& second) {
    Plan plan;
    plan.clear(scatter);
    plan.add_or_extend({1, 600, 8, out}, 20);
    plan.add_or_extend(second, 20);
    return plan.size();
  };
  EXPECT_EQ(pieces({}, {1, 608, 8, out + 8}), 1u);
  EXPECT_EQ(pieces({}, {1, 608, 8, out + 9}), 2u);
  EXPECT_EQ(pieces({}, {1, 609, 8, out + 8}), 2u);
  EXPECT_EQ(pieces({}, {1, 600, 8, out + 8}), 2u);
  EXPECT_EQ(pieces({}, {2, 608, 8, out + 8}), 2u);
  EXPECT_EQ(pieces({}, {1, 608, 12, out + 8}), 1u);
  EXPECT_EQ(pieces({}, {1, 608, 13, out + 8}), 2u);     // longer than 20 bytes
  EXPECT_EQ(pieces({4, 8}, {1, 608, 8, out + 8}), 2u);  // elements that go apart
}

TEST(Plan, OfNothingAsksForNothing) {
  Plan plan;
  plan.clear({});
  plan.build({512, 4096, 0}, false);
  Extent extent;
  EXPECT_FALSE(plan.next(extent, 0));
  EXPECT_EQ(plan.request_bytes(), 0u);
}

TEST(Plan, MergesAGapOfExactlyTheLimitAndNotOneByteMore) {
  for (const std::uint64_t gap : {100u, 101u}) {
    const Planned planned({{0, 0, 10}, {0, 10 + gap, 10}}, {1, 1 << 20, 100}, {}, false);
    EXPECT_EQ(planned.extents.size(), gap == 100 ? 1u : 2u);
  }
}

TEST(Plan, NeighboursBecomeOneRequestWithoutAnyGap) {
  const Planned planned({{0, 10, 10}, {0, 0, 10}}, {1, 1 << 20, 0}, {}, false);
  ASSERT_EQ(planned.extents.size(), 1u);
  EXPECT_EQ(planned.extents[0].length, 20u);
}

TEST(Plan, NeverMergesAcrossFiles) {
  const Planned planned({{0, 0, 10}, {1, 0, 10}, {1, 5, 10}}, {1, 1 << 20, 1 << 20}, {}, false);
  ASSERT_EQ(planned.extents.size(), 2u);
  EXPECT_EQ(planned.extents[1].length, 15u);
}

TEST(Plan, IsUsedAgainAfterClear) {
  Planned planned({{0, 0, 100}, {2, 5000, 100}}, {512, 1024, 0}, {}, false);
  std::byte out[8];
  planned.plan.clear({});
  planned.plan.add({1, 600, 8, out});
  planned.plan.build({512, 1024, 0}, false);
  Extent extent;
  ASSERT_TRUE(planned.plan.next(extent, 0));
  EXPECT_EQ(std::tuple(extent.file, extent.offset, extent.length), std::tuple(1u, 512u, 512u));
  planned.plan.deliver(extent, 0, Planned::bytes_of(extent).data());
  EXPECT_EQ(out[7], content(1, 607));
  EXPECT_FALSE(planned.plan.next(extent, 0));
}

TEST(Plan, OffsetsBeyond32BitsAreKept) {
  constexpr std::uint64_t kFar = std::uint64_t{1} << 45;
  std::byte out[10];
  Plan plan;
  plan.clear({});
  plan.add({0, kFar + 5, 10, out});
  plan.build({512, 1 << 20, 0}, false);
  Extent extent;
  ASSERT_TRUE(plan.next(extent, 0));
  EXPECT_EQ(extent.offset, kFar);
  plan.deliver(extent, 0, Planned::bytes_of(extent).data());
  EXPECT_EQ(out[9], content(0, kFar + 14));
}

}  // namespace
}  // namespace evenkeel
