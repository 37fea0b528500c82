// Counts how often blocks were requested recently, in four bits each, by hash.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace evenkeel {

// Mixes the bits of a number, so that neighbours become unrelated (the finalizer of SplitMix64).
inline std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// A count-min sketch of counters up to 15. Different blocks may share counters; a count is then too
// high, never too low. Use it from one thread at a time.
class FrequencySketch {
 public:
  static constexpr std::uint32_t kMost = 15;

  // Makes room for about `blocks` blocks, with 8 bytes each: with 4, blocks of a file four times as
  // large as the cache collide too often. Resets all counts if the size changes.
  void resize(std::size_t blocks) {
    std::size_t bytes = 64;
    while (bytes < blocks * 8) bytes *= 2;
    if (bytes == counters_.size()) return;
    counters_.assign(bytes, 0);
  }
  // Adds one and returns the count.
  std::uint32_t add(std::uint64_t hash) {
    const std::uint32_t now = count(hash);
    if (now < kMost) raise(hash, now + 1);
    return std::min(now + 1, kMost);
  }
  std::uint32_t count(std::uint64_t hash) const {
    std::uint32_t least = kMost;
    for (int row = 0; row < kRows; ++row) least = std::min(least, get(place(hash, row)));
    return least;
  }
  // Raises the count to at least `to`.
  void raise(std::uint64_t hash, std::uint32_t to) {
    for (int row = 0; row < kRows; ++row) {
      const std::size_t at = place(hash, row);
      const std::uint32_t before = get(at);
      if (before < to) {
        counters_[at / 2] =
            static_cast<std::uint8_t>(counters_[at / 2] + ((to - before) << shift(at)));
      }
    }
  }
  void halve() {
    for (std::uint8_t& two : counters_) two = (two >> 1) & 0x77;
  }

 private:
  static constexpr int kRows = 4;
  static int shift(std::size_t at) { return at % 2 == 0 ? 0 : 4; }
  std::size_t place(std::uint64_t hash, int row) const {
    return mix_bits(hash + static_cast<std::uint64_t>(row) * 0x9e3779b97f4a7c15) &
           (counters_.size() * 2 - 1);
  }
  std::uint32_t get(std::size_t at) const { return (counters_[at / 2] >> shift(at)) & 15; }

  std::vector<std::uint8_t> counters_ = std::vector<std::uint8_t>(64);
};

}  // namespace evenkeel
