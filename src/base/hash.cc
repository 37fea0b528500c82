// The only file that includes xxHash. It uses the header-only version, so there is no library to
// link. Every byte that is read may be hashed, so this file is always optimised; see
// src/CMakeLists.txt.
#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace evenkeel {

std::uint64_t xxh3(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 xxh3_128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

struct RunningXxh3::State {
  XXH3_state_t xxh3;
};

RunningXxh3::RunningXxh3(std::uint64_t seed) : state_(std::make_unique<State>()) { reset(seed); }
RunningXxh3::~RunningXxh3() = default;

void RunningXxh3::append(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::uint64_t RunningXxh3::hash() const { return XXH3_64bits_digest(&state_->xxh3); }

void RunningXxh3::reset(std::uint64_t seed) {
  XXH3_INITSTATE(&state_->xxh3);
  XXH3_64bits_reset_withSeed(&state_->xxh3, seed);
}

}  // namespace evenkeel
