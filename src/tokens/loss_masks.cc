#include "tokens/loss_masks.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "loader/data.h"
#include "tokens/impl.h"

namespace evenkeel {
namespace {

template <class T>
void clear_where_zero(const std::byte* numbers, std::uint64_t count, std::uint8_t* out) {
  for (std::uint64_t i = 0; i < count; ++i) {
    T number;
    std::memcpy(&number, numbers + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::uint8_t>(out[i] & (number != 0 ? 1U : 0U));
  }
}

}  // namespace

LossMasks::LossMasks(const std::vector<WeightedTokens>& sets, std::uint64_t places)
    : places_(places) {
  std::vector<const Layout*> layouts;
  const Tokens::Impl* first = nullptr;
  std::uint64_t rows = 0;
  for (const WeightedTokens& set : sets) {
    firsts_.push_back(set.loss_mask ? rows : kNone);
    fingerprints_.push_back(set.loss_mask ? set.loss_mask->fingerprint() : "");
    if (!set.loss_mask) continue;
    const Tokens::Impl& mask = TokenInternals::of(*set.loss_mask);
    if (set.loss_mask->size() != set.tokens.size()) {
      throw Error(ErrorKind::kInvalid, "loss_mask",
                  "there are " + with_commas(set.loss_mask->size()) + " numbers for the " +
                      with_commas(set.tokens.size()) + " tokens of " + set.tokens.paths().front())
          .in(set.loss_mask->paths().front())
          .hint("a loss mask has one number for each token; 0 if it is not to be predicted");
    }
    if (!first) first = &mask;
    rows += set.loss_mask->size();
    layouts.push_back(&mask.layout());
  }
  if (!first) return;
  array_ = layouts.size() == 1
               ? first->array
               : std::make_shared<Array::Impl>(joined_layout(layouts, "loss_mask"),
                                               ArrayOptions{.budget = first->array->budget,
                                                            .engine = first->engine,
                                                            .cache = first->cache});
}

std::string LossMasks::fingerprint(std::size_t set) const { return fingerprints_[set]; }

std::uint64_t LossMasks::slot_bytes(std::uint64_t pieces) const {
  return any() ? places_ * array_->layout.dtype.size + pieces * sizeof(JobRun) : 0;
}

void LossMasks::add_slot(const Budget& budget, std::uint64_t pieces) {
  if (!any()) return;
  Slot slot;
  slot.budget = budget;
  slot.share = budget.reserve(pieces * sizeof(JobRun), "pieces of loss masks");
  slot.room = pieces;
  slot.runs.reserve(pieces);
  slot.numbers = PageBuffer(budget, places_ * array_->layout.dtype.size, "a batch's loss mask");
  slots_.push_back(std::move(slot));
}

void LossMasks::make_room(Slot& slot) const {
  if (slot.runs.size() < slot.room) return;
  const std::size_t room = 2 * slot.room;
  // The old list exists until the new one is filled. The plan has a number for each piece, too.
  Reservation more = slot.budget.reserve(
      (room + slot.room) * (sizeof(JobRun) + sizeof(std::uint64_t)), "pieces of loss masks");
  slot.runs.reserve(room);
  slot.more = std::move(more);
  slot.room = room;
}

void LossMasks::add(std::size_t slot, std::size_t set, std::uint64_t first, std::uint64_t count,
                    std::uint64_t place) {
  if (firsts_[set] == kNone || count == 0) return;
  Slot& mine = slots_[slot];
  make_room(mine);
  mine.runs.push_back(
      {firsts_[set] + first, count, mine.numbers.data() + place * array_->layout.dtype.size});
}

Job& LossMasks::job(std::size_t slot) {
  Slot& mine = slots_[slot];
  mine.job = Job{};
  mine.job.runs = mine.runs;
  return mine.job;
}

void LossMasks::apply(std::size_t slot, std::uint8_t* loss_mask) const {
  const Slot& mine = slots_[slot];
  const std::uint32_t size = array_->layout.dtype.size;
  for (const JobRun& run : mine.runs) {
    std::uint8_t* const out = loss_mask + (run.out - mine.numbers.data()) / size;
    switch (size) {
      case 1:
        clear_where_zero<std::uint8_t>(run.out, run.count, out);
        break;
      case 2:
        clear_where_zero<std::uint16_t>(run.out, run.count, out);
        break;
      case 4:
        clear_where_zero<std::uint32_t>(run.out, run.count, out);
        break;
      default:
        clear_where_zero<std::uint64_t>(run.out, run.count, out);
    }
  }
}

}  // namespace evenkeel
