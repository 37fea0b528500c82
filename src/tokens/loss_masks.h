// Loss masks: a number for each token, which says whether the token is to be predicted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "array/impl.h"
#include "array/row_feed.h"
#include "base/memory.h"
#include "evenkeel/tokens.h"

namespace evenkeel {

// The loss masks of the sets of a mixture, some of which may have none. The thread that prepares
// batches calls `begin` and `add`; the thread that finishes them calls `apply`. There is one call
// at a time for each slot.
class LossMasks {
 public:
  // Batches have at most `places` positions. Throws Error (kInvalid) if a mask does not have as
  // many numbers as there are tokens.
  LossMasks(const std::vector<WeightedTokens>& sets, std::uint64_t places);

  bool any() const { return array_ != nullptr; }
  const std::shared_ptr<Array::Impl>& array() const { return array_; }
  std::string fingerprint(std::size_t set) const;

  // The memory for the masks of a batch with this many pieces.
  std::uint64_t slot_bytes(std::uint64_t pieces) const;
  void add_slot(const Budget& budget, std::uint64_t pieces);
  void keep_slots(std::size_t count) { slots_.resize(std::min(count, slots_.size())); }

  // For each batch: call `begin`, then `add` for each piece. The targets of a piece are tokens
  // `first` .. first + count - 1 of a set, at position `place` and following of the batch.
  void begin(std::size_t slot) { slots_[slot].runs.clear(); }
  void add(std::size_t slot, std::size_t set, std::uint64_t first, std::uint64_t count,
           std::uint64_t place);
  Job& job(std::size_t slot);
  std::span<const JobRun> runs(std::size_t slot) const { return slots_[slot].runs; }
  // Where the mask of a set begins in the array, if it has one.
  std::optional<std::uint64_t> first_of(std::size_t set) const {
    return firsts_[set] == kNone ? std::nullopt : std::optional(firsts_[set]);
  }
  // Called when everything was read. Sets loss_mask to 0 where the mask is 0.
  void apply(std::size_t slot, std::uint8_t* loss_mask) const;

 private:
  static constexpr std::uint64_t kNone = UINT64_MAX;
  struct Slot {
    Reservation share, more;
    std::size_t room = 0;  // runs
    Budget budget;
    PageBuffer numbers;
    std::vector<JobRun> runs;
    Job job;
  };
  void make_room(Slot& slot) const;

  const std::uint64_t places_;
  std::shared_ptr<Array::Impl> array_;
  std::vector<std::uint64_t> firsts_;  // row of each set in the array; kNone: it has no mask
  std::vector<std::string> fingerprints_;
  std::deque<Slot> slots_;
};

}  // namespace evenkeel
