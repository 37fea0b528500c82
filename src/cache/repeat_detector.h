// Detects whether blocks are read again soon enough for a cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"
#include "cache/frequency.h"

namespace evenkeel {

// Follows a sample of the blocks, chosen by hash, and counts how many blocks are read between two
// reads of the same block. A block that is read again after d others would hit a cache of c blocks
// with a probability of about c / d, at most 1. The mean of that is the hit rate that a cache would
// have. A scan or an exact shuffle of a file never repeats, so its rate is 0. Thread-safe; most
// reads only add to a counter.
class RepeatDetector {
 public:
  // `blocks` is the number of different blocks that may be read.
  explicit RepeatDetector(std::uint64_t blocks);

  // Call when `blocks` blocks were read, starting with `block`. Returns true if a cache of
  // `cache_blocks()` blocks would surely have a hit rate of at least kWorthwhile; then the detector
  // starts over.
  template <class CacheBlocks>
  bool repeats(std::uint64_t block, std::uint64_t blocks, const CacheBlocks& cache_blocks) {
    const std::uint64_t now = blocks_read_.fetch_add(blocks, std::memory_order_relaxed);
    const std::uint64_t hash = mix_bits(block ^ kSalt);
    return (hash & sampled_mask_) == 0 && follow(hash, now, cache_blocks());
  }
  std::uint64_t memory() const { return memory_; }  // bytes that it takes

  static constexpr double kWorthwhile = 0.08;

 private:
  static constexpr std::uint64_t kSalt = 0x5851f42d4c957f2d;
  struct Seen {
    std::uint32_t tag = 0;
    std::uint32_t when = 0;  // in blocks read; 0: never
  };
  bool follow(std::uint64_t hash, std::uint64_t now, std::uint64_t cache_blocks);

  const std::uint64_t sampled_mask_;
  const std::uint64_t memory_;
  std::atomic<std::uint64_t> blocks_read_ = 1;
  Mutex mutex_;
  std::vector<Seen> seen_ GUARDED_BY(mutex_);
  // Moving averages of the probability of a hit and of its square.
  double rate_ GUARDED_BY(mutex_) = 0, square_ GUARDED_BY(mutex_) = 0;
  std::uint32_t samples_ GUARDED_BY(mutex_) = 0;
};

}  // namespace evenkeel
