// XXH64 as its specification describes it (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
#include <bit>
#include <cstring>

#include "remote/disk_cache.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kP1 = 0x9E3779B185EBCA87, kP2 = 0xC2B2AE3D27D4EB4F,
                        kP3 = 0x165667B19E3779F9, kP4 = 0x85EBCA77C2B2AE63,
                        kP5 = 0x27D4EB2F165667C5;

template <class T>
T load_le(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::uint64_t mix_lane(std::uint64_t lane, std::uint64_t value) {
  return std::rotl(lane + value * kP2, 31) * kP1;
}

}  // namespace

std::uint64_t xxh64(std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t hash = kP5;
  if (left >= 32) {
    std::uint64_t lanes[4] = {kP1 + kP2, kP2, 0, 0 - kP1};
    for (; left >= 32; left -= 32, at += 32) {
      for (std::size_t i = 0; i < 4; ++i) {
        lanes[i] = mix_lane(lanes[i], load_le<std::uint64_t>(at + 8 * i));
      }
    }
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
           std::rotl(lanes[3], 18);
    for (const std::uint64_t lane : lanes) hash = (hash ^ mix_lane(0, lane)) * kP1 + kP4;
  }
  hash += bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    hash = std::rotl(hash ^ mix_lane(0, load_le<std::uint64_t>(at)), 27) * kP1 + kP4;
  }
  if (left >= 4) {
    hash = std::rotl(hash ^ load_le<std::uint32_t>(at) * kP1, 23) * kP2 + kP3;
    left -= 4, at += 4;
  }
  for (; left > 0; --left, ++at) {
    hash = std::rotl(hash ^ std::to_integer<std::uint64_t>(*at) * kP5, 11) * kP1;
  }
  hash = (hash ^ hash >> 33) * kP2;
  hash = (hash ^ hash >> 29) * kP3;
  return hash ^ hash >> 32;
}

}  // namespace evenkeel
