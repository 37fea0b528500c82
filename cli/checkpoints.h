// The checksum of a stream of bytes, known at many points of the way, so that two engines which
// got differently far can be compared at the last point that both have passed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

struct XXH3_state_s;

namespace evenkeel::cli {

struct Checkpoint {
  std::uint64_t slices = 0;  // how many slices had been taken
  std::uint64_t checksum = 0;
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// Of all counts, those worth remembering: every one up to 2,048, every second up to 4,096, every
// fourth up to 8,192 ...: a thousand for each doubling, so an hour costs no more memory than a
// minute, and what is common to two runs is within 0.1 % of the shorter.
bool is_checkpoint(std::uint64_t slices);

// XXH3 over slices of a fixed number of bytes, each seeded by the one before. How the stream is cut
// into `take` calls makes no difference.
class SliceChecksum {
 public:
  explicit SliceChecksum(std::uint64_t slice_bytes);
  ~SliceChecksum();
  void take(std::span<const std::byte> bytes);
  std::uint64_t slices() const { return slices_; }
  const std::vector<Checkpoint>& checkpoints() const { return checkpoints_; }

 private:
  void finish(std::uint64_t checksum);

  const std::uint64_t slice_bytes_;
  std::uint64_t filled_ = 0, chain_ = 0, slices_ = 0;
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
  std::vector<Checkpoint> checkpoints_;
};

// The last count of slices that all runs remember; 0 when there is none.
std::uint64_t last_common(const std::vector<std::vector<Checkpoint>>& runs);
std::optional<std::uint64_t> checksum_at(const std::vector<Checkpoint>& run, std::uint64_t slices);

}  // namespace evenkeel::cli
