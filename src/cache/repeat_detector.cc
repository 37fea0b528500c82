#include "cache/repeat_detector.h"

#include <algorithm>
#include <bit>

namespace evenkeel {
namespace {

constexpr std::uint64_t kFollowed = 2048;     // blocks, about
constexpr std::uint32_t kFewestSamples = 64;  // before a rate is believed
constexpr double kWeight = 1.0 / 128;         // of one sample in the moving mean

// One block in so many, a power of two.
std::uint64_t sampling(std::uint64_t blocks) {
  return std::bit_ceil(std::max<std::uint64_t>(blocks / kFollowed, 1));
}

std::uint64_t places(std::uint64_t blocks) {
  return std::bit_ceil(std::clamp<std::uint64_t>(2 * blocks, 16, 2 * kFollowed));
}

}  // namespace

RepeatDetector::RepeatDetector(std::uint64_t blocks)
    : sampled_mask_(sampling(blocks) - 1),
      memory_(places(blocks) * sizeof(Seen)),
      seen_(places(blocks)) {}

bool RepeatDetector::follow(std::uint64_t hash, std::uint64_t now, std::uint64_t cache_blocks) {
  const MutexLock lock(mutex_);
  Seen& seen = seen_[(hash >> 32) & (seen_.size() - 1)];
  const auto tag = static_cast<std::uint32_t>(hash >> 16), when = static_cast<std::uint32_t>(now);
  double would_hit = 0;
  if (seen.when != 0 && seen.tag == tag) {
    const std::uint32_t distance = std::max(when - seen.when, std::uint32_t{1});
    would_hit = std::min(1.0, static_cast<double>(cache_blocks) / distance);
  }
  seen = {tag, std::max(when, std::uint32_t{1})};
  ++samples_;
  // The mean of all at first, then of the last ones.
  rate_ += (would_hit - rate_) * std::max(1.0 / samples_, kWeight);
  if (samples_ < kFewestSamples || rate_ < kWorthwhile) return false;
  samples_ = 0;
  rate_ = 0;
  std::ranges::fill(seen_, Seen{});
  return true;
}

}  // namespace evenkeel
