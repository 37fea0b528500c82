// Which tokens are to be predicted: a number for each token, read beside them.
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

// The loss masks of the sets of a mixture, some of which may have none. `begin` and `add` are for
// the thread that prepares batches, `apply` for the one that finishes them: one call at a time for
// each slot.
class LossMasks {
 public:
  // Batches have `places` positions at most. Throws Error (kInvalid) for a mask of another length.
  LossMasks(const std::vector<WeightedTokens>& sets, std::uint64_t places);

  bool any() const { return array_ != nullptr; }
  const std::shared_ptr<Array::Impl>& array() const { return array_; }
  std::string fingerprint(std::size_t set) const;

  // Memory for the masks of a batch that is made of so many pieces.
  std::uint64_t slot_bytes(std::uint64_t pieces) const;
  void add_slot(const Budget& budget, std::uint64_t pieces);
  void keep_slots(std::size_t count) { slots_.resize(std::min(count, slots_.size())); }

  // A batch: the targets of each of its pieces, tokens `first` .. first + count - 1 of a set, are
  // at position `place` and those that follow.
  void begin(std::size_t slot) { slots_[slot].runs.clear(); }
  void add(std::size_t slot, std::size_t set, std::uint64_t first, std::uint64_t count,
           std::uint64_t place);
  Job& job(std::size_t slot);
  std::span<const JobRun> runs(std::size_t slot) const { return slots_[slot].runs; }
  // Where the mask of a set begins in the array, if it has one.
  std::optional<std::uint64_t> first_of(std::size_t set) const {
    return firsts_[set] == kNone ? std::nullopt : std::optional(firsts_[set]);
  }
  // Everything was read. Sets loss_mask to 0 where the mask is.
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
  std::vector<std::uint64_t> firsts_;  // of each set in the array; kNone: it has no mask
  std::vector<std::string> fingerprints_;
  std::deque<Slot> slots_;
};

}  // namespace evenkeel
