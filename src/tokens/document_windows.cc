#include "tokens/document_windows.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "tokens/document_batches.h"

namespace evenkeel {
namespace {

std::uint64_t quotient_above(std::uint64_t number, std::uint64_t before, std::uint64_t by) {
  return number <= before ? 0 : (number - before - 1) / by + 1;
}

}  // namespace

std::uint64_t OrderWindows::windows() const {
  if (!taken) return (epoch - 1) / window + 1;
  return *taken == 0 ? 1 : ((*taken - 1) * world + rank) / window + 1;
}

std::uint64_t OrderWindows::within(std::uint64_t mine, std::uint64_t& epoch_number) const {
  if (taken) {
    epoch_number = mine / *taken;
    return mine % *taken * world + rank;
  }
  const std::uint64_t all = mine * world + rank;
  epoch_number = all / epoch;
  return all % epoch;
}

std::uint64_t OrderWindows::position(std::uint64_t mine) const {
  std::uint64_t epoch_number;
  const std::uint64_t in_epoch = within(repeat > 0 ? mine % repeat : mine, epoch_number);
  return epoch_number * epoch + in_epoch;
}

std::uint64_t OrderWindows::number_of(std::uint64_t mine) const {
  if (repeat == 0) return number_in_repeat(mine);
  return mine / repeat * repeated_windows() + number_in_repeat(mine % repeat);
}

std::uint64_t OrderWindows::first_of(std::uint64_t number) const {
  if (repeat == 0) return first_in_repeat(number);
  const std::uint64_t each = repeated_windows();
  return number / each * repeat + std::min(repeat, first_in_repeat(number % each));
}

std::uint64_t OrderWindows::number_in_repeat(std::uint64_t mine) const {
  std::uint64_t epoch_number;
  const std::uint64_t in_epoch = within(mine, epoch_number);
  return epoch_number * windows() + in_epoch / window;
}

std::uint64_t OrderWindows::first_in_repeat(std::uint64_t number) const {
  const std::uint64_t epoch_number = number / windows(), begin = number % windows() * window;
  if (!taken) return quotient_above(epoch_number * epoch + begin, rank, world);
  return epoch_number * *taken + std::min(*taken, quotient_above(begin, rank, world));
}

DocumentWindowReader::DocumentWindowReader(DocumentBatches& documents,
                                           std::shared_ptr<Array::Impl> tokens,
                                           std::shared_ptr<Array::Impl> masks, Set set)
    : documents_(documents),
      tokens_(std::move(tokens)),
      masks_(set.first_mask ? std::move(masks) : nullptr),
      set_(std::move(set)) {
  engines_.push_back(tokens_->engine());
  if (masks_) engines_.push_back(masks_->engine());
  try {
    reserve();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;
    free_memory();
    const std::uint64_t bytes = kSlots * set_.usual_tokens * tokens_->layout.row_bytes;
    throw Error(ErrorKind::kBudget, "order blocks",
                "two windows of " + with_commas(set_.windows.window) + " rows, with about " +
                    with_commas(set_.usual_tokens) +
                    " tokens each for this rank, do not fit: " + with_commas(bytes) +
                    " bytes are needed, " + with_commas(tokens_->budget.left()) +
                    " are left of a budget of " + tokens_->budget.describe())
        .in(tokens_->layout.paths.front())
        .hint("use a smaller window or fewer mixed_windows, or raise the budget");
  }
  std::vector<ReadStream> streams;
  streams.push_back({tokens_->layout, *engines_[0], tokens_->merge_gap});
  // Masks are read after the tokens, whose job finds the spans.
  if (masks_) streams.push_back({masks_->layout, *engines_[1], masks_->merge_gap, 0});
  start(std::move(streams), tokens_->budget.limit() / 4, UINT64_MAX);
}

void DocumentWindowReader::reserve() {
  const Budget& budget = tokens_->budget;
  const std::uint64_t most = set_.windows.most();
  const std::uint64_t plans =
      RowFeed::memory(budget.limit() / 4, 0);  // make_room reserves the rest
  lists_share_ =
      budget.reserve(most * sizeof(std::uint64_t) + engines_.size() * plans, "plans of windows");
  rows_.reserve(most);
  grow_wanted(set_.usual_spans);
  slots_.resize(kSlots);
  for (Slot& slot : slots_) {
    make_room(slot, usual_spans());
    for (std::size_t i = 0; i < engines_.size(); ++i) {
      std::uint64_t bytes = set_.usual_tokens * array(i).layout.row_bytes;
      const std::uint64_t spans = std::max<std::uint64_t>(1, usual_spans());
      const RunRoom room = WindowReader::room(bytes / spans, *engines_[i]);
      bytes += spans * room.overhang();
      slot.parts[i].memory = PageBuffer(budget, bytes, "a window of documents");
    }
  }
}

void DocumentWindowReader::free_memory() {
  slots_.clear();
  rows_ = {};
  wanted_ = {};
  wanted_share_.release();
  lists_share_.release();
}

void DocumentWindowReader::grow_wanted(std::size_t room) {
  // The old list exists until the new one is filled.
  Reservation more =
      tokens_->budget.reserve((room + wanted_.capacity()) * sizeof(Span), "documents of a window");
  wanted_.reserve(room);
  wanted_share_ = std::move(more);
}

void DocumentWindowReader::want(Span span) {
  if (wanted_.size() == wanted_.capacity()) {
    grow_wanted(std::max<std::size_t>(2 * wanted_.capacity(), 1));
  }
  wanted_.push_back(span);
}

void DocumentWindowReader::make_room(Slot& slot, std::size_t spans) const {
  if (spans <= slot.room) return;
  const std::uint64_t each =
      sizeof(Span) +
      engines_.size() * (sizeof(JobRun) + sizeof(std::uint64_t) + RowFeed::bytes_of_start());
  Reservation more =
      tokens_->budget.reserve((spans + slot.room) * each, "parts of a window of documents");
  slot.spans.reserve(spans);
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    slot.parts[i].runs.reserve(spans);
    slot.parts[i].places.reserve(spans);
  }
  slot.share = std::move(more);
  slot.room = spans;
}

void DocumentWindowReader::find_spans(Slot& slot, std::uint64_t number) {
  const std::uint64_t first = begin_of(number), count = end_of(number) - first;
  slot.spans.clear();
  if (count == 0) return;
  rows_.resize(count);
  set_.order->fill({set_.windows.position(first), count, set_.windows.world}, rows_);
  wanted_.clear();
  documents_.for_each_span(set_.number, rows_, [&](std::uint64_t start, std::uint64_t tokens) {
    want({start, start + tokens});
  });
  std::ranges::sort(wanted_, {}, &Span::start);
  // Merge in place first, so that the slot's list needs room only for merged spans. Gaps between
  // spans take no memory: the plan reads a small gap and drops it.
  std::size_t merged = 0;
  for (const Span& span : wanted_) {
    if (merged > 0 && span.start <= wanted_[merged - 1].end) {
      wanted_[merged - 1].end = std::max(wanted_[merged - 1].end, span.end);
    } else {
      wanted_[merged++] = span;
    }
  }
  make_room(slot, merged);
  slot.spans.assign(wanted_.begin(), wanted_.begin() + static_cast<std::ptrdiff_t>(merged));
}

void DocumentWindowReader::place(Slot& slot, std::size_t which) {
  const Layout& layout = array(which).layout;
  Part& part = slot.parts[which];
  std::uint64_t tokens = 0;
  for (const Span& span : slot.spans) tokens += span.end - span.start;
  const std::uint64_t mean = tokens / std::max<std::uint64_t>(1, slot.spans.size());
  RunPlacer placer{layout, WindowReader::room(mean * layout.row_bytes, *engines_[which])};
  const std::uint64_t first = which == 0 ? set_.first_token : *set_.first_mask;
  part.runs.clear();
  part.places.clear();
  for (const Span& span : slot.spans) {
    part.runs.push_back({first + span.start, span.end - span.start, nullptr});
    part.places.push_back(placer.place(first + span.start, span.end - span.start));
  }
  if (placer.end > part.memory.size()) {
    part.memory = {};
    part.memory = PageBuffer(tokens_->budget, placer.end, "a window of documents");
  }
  for (std::size_t i = 0; i < part.runs.size(); ++i) {
    part.runs[i].out = part.memory.data() + part.places[i];
  }
  part.job = Job{};
  part.job.runs = part.runs;
  part.job.roomy = static_cast<bool>(placer.room);
}

Job& DocumentWindowReader::prepare_stream(std::size_t slot, std::uint64_t number,
                                          std::size_t stream) {
  if (stream == 0) find_spans(slots_[slot], number);
  place(slots_[slot], stream);
  return slots_[slot].parts[stream].job;
}

void DocumentWindowReader::Held::copy(std::size_t which, std::uint64_t start, std::uint64_t count,
                                      std::byte* out) const {
  const auto& slot = reader_.slots_[slot_];
  const auto after = std::ranges::upper_bound(slot.spans, start, {}, &Span::start);
  const auto number = static_cast<std::size_t>(after - slot.spans.begin()) - 1;
  const std::uint64_t size = reader_.array(which).layout.row_bytes;
  const auto& part = slot.parts[which];
  std::memcpy(out,
              part.memory.data() + part.places[number] + (start - slot.spans[number].start) * size,
              count * size);
}

void DocumentWindows::open(std::size_t sets, const Make& make) {
  readers_.clear();
  opened_ = true;
  std::vector<std::unique_ptr<DocumentWindowReader>> made;
  for (std::size_t i = 0; i < sets; ++i) made.push_back(make(i));
  readers_ = std::move(made);
}

DocumentWindowReader& DocumentWindows::reader(std::size_t set) const {
  if (!missing()) return *readers_[set];
  throw Error(ErrorKind::kBudget, "loader",
              "the windows were released when a state was loaded, and no longer fit the budget")
      .hint("load a state whose windows fit the budget, or create a new loader");
}

void DocumentWindows::pass(const Positions& first, const Positions& end) {
  for (std::size_t i = 0; i < readers_.size(); ++i) readers_[i]->pass(first[i], end[i]);
}

void DocumentWindows::seek(const Positions& first, const Positions& end) {
  for (std::size_t i = 0; i < readers_.size(); ++i) readers_[i]->seek(first[i], end[i]);
}

void DocumentWindows::interrupt() {
  for (const auto& reader : readers_) reader->interrupt();
}

bool DocumentWindows::close(std::optional<ReadAhead::Clock::time_point> deadline) {
  return std::ranges::all_of(readers_, [&](const auto& reader) { return reader->close(deadline); });
}

}  // namespace evenkeel
