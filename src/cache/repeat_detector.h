// Whether blocks that are read are read again soon enough for a cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "cache/frequency.h"

namespace evenkeel {

// Follows a sample of the blocks, chosen by hash, and how many reads lie between two of the same. A
// read that comes d reads after the last one would hit a cache of c blocks with a probability of
// about c / d, at most 1. The mean of that is the hit rate that a cache would have. A scan or an
// exact shuffle of a file never repeats, and gives 0. Thread-safe; most reads only add to a
// counter.
class RepeatDetector {
 public:
  // `blocks`: how many there are to follow.
  explicit RepeatDetector(std::uint64_t blocks);

  // A block was read. True when the rate that a cache of `cache_blocks()` would have has come to
  // kWorthwhile; then it begins anew.
  template <class CacheBlocks>
  bool repeats(std::uint64_t block, const CacheBlocks& cache_blocks) {
    const std::uint64_t now = reads_.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t hash = mix_bits(block ^ kSalt);
    return (hash & sampled_mask_) == 0 && follow(hash, now, cache_blocks());
  }
  std::uint64_t memory() const { return memory_; }  // that it takes

  static constexpr double kWorthwhile = 0.08;

 private:
  static constexpr std::uint64_t kSalt = 0x5851f42d4c957f2d;
  struct Seen {
    std::uint32_t tag = 0;
    std::uint32_t when = 0;  // in reads; 0: never
  };
  bool follow(std::uint64_t hash, std::uint64_t now, std::uint64_t cache_blocks);

  const std::uint64_t sampled_mask_;
  const std::uint64_t memory_;
  std::atomic<std::uint64_t> reads_ = 1;
  Mutex mutex_;
  std::vector<Seen> seen_ GUARDED_BY(mutex_);
  double rate_ GUARDED_BY(mutex_) = 0;  // a moving mean
  std::uint32_t samples_ GUARDED_BY(mutex_) = 0;
};

}  // namespace evenkeel
