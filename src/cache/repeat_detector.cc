#include "cache/repeat_detector.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace evenkeel {
namespace {

constexpr std::uint64_t kFollowed = 2048;     // about how many blocks are followed
constexpr std::uint64_t kPlaces = 8;          // places that a block may have
constexpr std::uint32_t kFewestSamples = 64;  // before a rate is trusted
constexpr double kWeight = 1.0 / 256;         // of one sample in the moving averages

// One block in this many is followed; a power of two.
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
  const auto tag = static_cast<std::uint32_t>(hash >> 16), when = static_cast<std::uint32_t>(now);
  // Finds the place of the block among a few, or the place that was not used for longest.
  Seen* const few = &seen_[(hash >> 32) & (seen_.size() - kPlaces)];
  Seen* found = few;
  for (Seen* place = few; place != few + kPlaces; ++place) {
    if (place->when != 0 && place->tag == tag) {
      found = place;
      break;
    }
    const bool longer =
        place->when == 0 || (found->when != 0 && when - place->when > when - found->when);
    if (longer) found = place;
  }
  Seen& seen = *found;
  double would_hit = 0;
  if (seen.when != 0 && seen.tag == tag) {
    const std::uint32_t distance = std::max(when - seen.when, std::uint32_t{1});
    would_hit = std::min(1.0, static_cast<double>(cache_blocks) / distance);
  }
  seen = {tag, std::max(when, std::uint32_t{1})};
  ++samples_;
  // The mean of all samples at first, then a moving average.
  const double weight = std::max(1.0 / samples_, kWeight);
  rate_ += (would_hit - rate_) * weight;
  square_ += (would_hit * would_hit - square_) * weight;
  // With few samples, the mean may be above the threshold by chance, so the standard error is
  // subtracted.
  const double error = std::sqrt(std::max(square_ - rate_ * rate_, 0.0) * weight);
  if (samples_ < kFewestSamples || rate_ - error < kWorthwhile) return false;
  samples_ = 0;
  rate_ = square_ = 0;
  std::ranges::fill(seen_, Seen{});
  return true;
}

}  // namespace evenkeel
