// Philox4x32-10 as the orders use it: 128 bits that depend only on (seed, epoch, stream, index).
#pragma once

#include <Random123/philox.h>

#include <cstdint>

namespace evenkeel {

// The seed is the key. The epoch is one half of the counter; the other half is stream + index.
// Draws use 0..2^63-1; other streams begin above, so no two streams share a block.
enum class Stream : std::uint64_t {
  kDraws = 0,
  kRoundKeys = std::uint64_t{1} << 63,                  // of `shuffled`: 2^32 counters
  kBlockKeys = kRoundKeys + (std::uint64_t{1} << 32),   // of `blocks`: 2^32 counters
  kWindowKeys = kRoundKeys + (std::uint64_t{1} << 62),  // of `blocks`: 2^62 counters
};

struct Block {
  std::uint64_t low, high;
  friend bool operator==(const Block&, const Block&) = default;
};

inline Block philox(std::uint64_t seed, std::uint64_t epoch, Stream stream, std::uint64_t index) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const std::uint64_t counter = static_cast<std::uint64_t>(stream) + index;
  const philox4x32_ctr_t in = {{low(counter), high(counter), low(epoch), high(epoch)}};
  const philox4x32_key_t key = {{low(seed), high(seed)}};
  const philox4x32_ctr_t out = r123::Philox4x32_R<10>()(in, key);
  return {out.v[0] | std::uint64_t{out.v[1]} << 32, out.v[2] | std::uint64_t{out.v[3]} << 32};
}

// floor(x * n / 2^128) of the 128 bits x: uniform on 0..n-1.
inline std::uint64_t scale(const Block& x, std::uint64_t n) {
  using Wide = unsigned __int128;
  const Wide carry = Wide{x.low} * n >> 64;
  return static_cast<std::uint64_t>((Wide{x.high} * n + carry) >> 64);
}

}  // namespace evenkeel
