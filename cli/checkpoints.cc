#include "cli/checkpoints.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <new>

namespace evenkeel::cli {
namespace {

constexpr std::uint64_t kDense = 1024;

void free_state(XXH3_state_s* state) { XXH3_freeState(state); }

}  // namespace

bool is_checkpoint(std::uint64_t slices) {
  const std::uint64_t stride = std::max<std::uint64_t>(1, std::bit_floor(slices) / kDense);
  return slices > 0 && slices % stride == 0;
}

SliceChecksum::SliceChecksum(std::uint64_t slice_bytes)
    : slice_bytes_(slice_bytes), state_(XXH3_createState(), free_state) {
  if (!state_) throw std::bad_alloc();
  checkpoints_.reserve(16 * kDense);  // so that it does not grow, and move, while others measure
}

SliceChecksum::~SliceChecksum() = default;

void SliceChecksum::take(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min<std::uint64_t>(bytes.size(), slice_bytes_ - filled_);
    if (count == slice_bytes_) {
      finish(XXH3_64bits_withSeed(bytes.data(), count, chain_));
    } else {
      if (filled_ == 0) XXH3_64bits_reset_withSeed(state_.get(), chain_);
      XXH3_64bits_update(state_.get(), bytes.data(), count);
      filled_ += count;
      if (filled_ == slice_bytes_) finish(XXH3_64bits_digest(state_.get()));
    }
    bytes = bytes.subspan(count);
  }
}

void SliceChecksum::finish(std::uint64_t checksum) {
  chain_ = checksum;
  filled_ = 0;
  if (is_checkpoint(++slices_)) checkpoints_.push_back({slices_, chain_});
}

std::uint64_t last_common(const std::vector<std::vector<Checkpoint>>& runs) {
  // Every run remembers the same counts, so the shortest run's last is known to all.
  std::uint64_t last = UINT64_MAX;
  for (const auto& run : runs) last = std::min(last, run.empty() ? 0 : run.back().slices);
  return runs.empty() ? 0 : last;
}

std::optional<std::uint64_t> checksum_at(const std::vector<Checkpoint>& run, std::uint64_t slices) {
  const auto at = std::lower_bound(
      run.begin(), run.end(), slices,
      [](const Checkpoint& point, std::uint64_t count) { return point.slices < count; });
  if (at == run.end() || at->slices != slices) return std::nullopt;
  return at->checksum;
}

}  // namespace evenkeel::cli
