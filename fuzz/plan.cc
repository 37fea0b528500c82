// The plan: requests cover the wanted bytes once; they are sorted, merged within the gap, aligned
// and not too long. Bytes reach their places with every way of delivery.
#include "array/plan.h"

#include <array>

#include "base/checked.h"
#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

constexpr std::uint64_t kFileBytes = 6000;
constexpr std::uint64_t kRoom = 512;  // for one wanted piece and the alignment around it
constexpr std::size_t kMostWishes = 12;

std::byte content(std::uint32_t file, std::uint64_t offset) {
  return static_cast<std::byte>(offset * 7 + (offset >> 8) * 13 + file * 101);
}

EngineLimits any_limits(Input& input) {
  EngineLimits limits;
  limits.alignment = std::uint64_t{1} << input.upto(7);
  limits.max_request = limits.alignment * (1 + input.upto(9));
  limits.merge_gap = input.upto(1000);
  limits.block = input.upto(1) == 0 ? limits.alignment * input.upto(9) : input.upto(2000);
  return limits;
}

struct Wishes {
  std::vector<Piece> pieces;
  alignas(128) std::array<std::byte, kRoom * kMostWishes> room{};
};

void make_wishes(Input& input, Wishes& wishes, const EngineLimits& limits) {
  const std::uint64_t count = input.upto(kMostWishes - 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    Piece piece;
    piece.file = static_cast<std::uint32_t>(input.upto(2));
    piece.length = 1 + input.upto(200);
    piece.offset = input.upto(kFileBytes - piece.length);
    piece.out = wishes.room.data() + i * kRoom + 128 + piece.offset % limits.alignment;
    wishes.pieces.push_back(piece);
  }
}

void check_extents(const std::vector<Extent>& extents, const Wishes& wishes,
                   const EngineLimits& limits, bool roomy) {
  const Extent* last = nullptr;
  for (const Extent& extent : extents) {
    MUST(extent.length > 0 && extent.length <= limits.max_request);
    if (limits.block % limits.alignment == 0) {
      MUST(extent.offset % limits.alignment == 0 && extent.length % limits.alignment == 0);
    }
    if (limits.block > 0) {
      MUST(extent.offset / limits.block == (extent.offset + extent.length - 1) / limits.block);
    }
    if (last && last->file == extent.file) {
      const std::uint64_t end = last->offset + last->length;
      MUST(extent.offset >= end);  // sorted, and nothing is read twice
      const bool apart = extent.offset - end > (roomy ? 0 : limits.merge_gap);
      MUST(apart == (extent.tag != last->tag));  // extents within the gap are one run
    } else if (last) {
      MUST(extent.file > last->file);
    }
    last = &extent;
  }
  for (const Piece& piece : wishes.pieces) {
    for (std::uint64_t at = piece.offset; at < piece.end(); ++at) {
      const auto holds = [&](const Extent& extent) {
        return extent.file == piece.file && extent.offset <= at &&
               at < extent.offset + extent.length;
      };
      MUST(std::ranges::count_if(extents, holds) == 1);
    }
  }
}

enum class Way : std::uint8_t { kDeliver, kInPlace, kTarget };

void bring(const Plan& plan, const Extent& extent, Way way) {
  std::vector<std::byte> bytes(extent.length);
  for (std::uint64_t i = 0; i < extent.length; ++i) {
    bytes[i] = content(extent.file, extent.offset + i);
  }
  const auto target = plan.target(extent, extent.tag);
  if (way == Way::kInPlace && extent.into) {
    std::ranges::copy(bytes, extent.into);
    plan.deliver(extent, extent.tag, extent.into);
  } else if (way == Way::kTarget && target) {
    std::copy_n(bytes.data() + (target->offset - extent.offset), target->length, target->out);
    plan.deliver(extent, extent.tag, nullptr);
  } else {
    plan.deliver(extent, extent.tag, bytes.data());
  }
}

FUZZ_TARGET(plan) {
  const EngineLimits limits = any_limits(input);
  const bool roomy = input.flag();
  Wishes wishes;
  make_wishes(input, wishes, limits);
  Plan plan;
  plan.clear({});
  for (const Piece& piece : wishes.pieces) plan.add(piece);
  plan.build(limits, roomy);
  std::vector<Extent> extents;
  std::uint64_t bytes = 0;
  for (Extent extent; plan.next(extent, 0); bytes += extent.length) extents.push_back(extent);
  MUST(bytes == plan.request_bytes());
  check_extents(extents, wishes, limits, roomy);
  const auto way = static_cast<Way>(input.upto(2));
  while (!extents.empty()) {  // in any order
    const std::size_t which = input.upto(255) % extents.size();
    bring(plan, extents[which], way);
    extents.erase(extents.begin() + static_cast<std::ptrdiff_t>(which));
  }
  for (const Piece& piece : wishes.pieces) {
    for (std::uint64_t i = 0; i < piece.length; ++i) {
      MUST(piece.out[i] == content(piece.file, piece.offset + i));
    }
  }
}

}  // namespace
}  // namespace evenkeel::fuzz
