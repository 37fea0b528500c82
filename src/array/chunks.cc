#include "array/chunks.h"

#include <unistd.h>

#include <algorithm>

#include "array/row_extents.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// One in use, one being read, one that keeps the queue full in between.
constexpr std::size_t kMostSlots = 3;
// Around a chunk's rows: the overhang of two blocks of 4 KiB, and what rounding to pages adds.
constexpr std::uint64_t kSlotOverhead = 16_KiB;

}  // namespace

void Chunk::require(DType wanted, std::size_t alignment) const {
  const bool same =
      wanted == dtype_ || (dtype_.kind == DTypeKind::kRecord && wanted.size == dtype_.size);
  if (!same) {
    throw Error(ErrorKind::kInvalid, "chunk",
                "holds " + dtype_.name() + ", asked for as " + wanted.name());
  }
  if (reinterpret_cast<std::uintptr_t>(bytes_.data()) % alignment != 0) {
    throw Error(ErrorKind::kInvalid, "chunk", "rows are not aligned for this type")
        .hint("copy them out of bytes()");
  }
}

Chunks::Chunks(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Chunks::Chunks(Chunks&&) noexcept = default;
Chunks& Chunks::operator=(Chunks&& other) noexcept {
  if (this == &other) return *this;
  const Chunks old(std::move(*this));
  impl_ = std::move(other.impl_);
  current_ = other.current_;
  return *this;
}
Chunks::~Chunks() {
  // In a child of fork the reading thread is not there, and what it was waiting on cannot be
  // destroyed without it: that is left as it is.
  if (impl_ && !impl_->owned_here()) static_cast<void>(impl_.release());
}
std::uint64_t Chunks::size() const { return impl_->size(); }
int Chunks::buffers() const { return impl_->buffers(); }
void Chunks::seek(std::uint64_t chunk) { impl_->seek(chunk); }
bool Chunks::advance() { return impl_->advance(current_); }

Chunks::Impl::Impl(std::shared_ptr<Array::Impl> array, std::uint64_t rows_per_chunk,
                   const Order& order)
    : array_(std::move(array)),
      engine_(array_->engine()),
      sequence_(order, array_->layout.rows),
      rows_per_chunk_(std::min(rows_per_chunk, std::max<std::uint64_t>(sequence_.size(), 1))),
      chunks_(rows_per_chunk_ == 0 ? 0
                                   : (sequence_.size() + rows_per_chunk_ - 1) / rows_per_chunk_),
      in_order_(order.kind == OrderKind::kSequential && order.world == 1),
      owner_(::getpid()) {
  if (rows_per_chunk == 0) throw Error(ErrorKind::kInvalid, "chunks", "a chunk of 0 rows");
  make_slots();
}

bool Chunks::Impl::owned_here() const { return owner_ == ::getpid(); }

void Chunks::Impl::require_owned() const {
  if (owned_here()) return;
  throw Error(ErrorKind::kClosed, "chunks", "this range was made before a fork")
      .hint("call chunks() in the child; the array itself may be used there");
}

std::uint64_t Chunks::Impl::overhang() const {
  return in_order_ ? 2 * engine_->limits().alignment : 0;
}

std::uint64_t Chunks::Impl::slot_bytes() const {
  return rows_per_chunk_ * array_->layout.row_bytes + overhang();
}

// Rows that follow one another are a few pieces, however many they are.
std::uint64_t Chunks::Impl::plan_limit() const {
  return in_order_ && !array_->layout.fortran ? 0 : array_->budget.limit();
}

std::uint64_t Chunks::Impl::plan_bytes() const { return RowFeed::memory(plan_limit(), listed()); }

void Chunks::Impl::add_slot() {
  Slot slot;
  slot.memory = PageBuffer(array_->budget, slot_bytes(), "a chunk's rows");
  slot.list_share =
      array_->budget.reserve(listed() * sizeof(std::uint64_t), "a chunk's row numbers");
  slot.rows.resize(listed());
  slots_.push_back(std::move(slot));
}

void Chunks::Impl::make_slots() {
  if (chunks_ == 0) return;
  const bool mapped = engine_->mapped(0) != nullptr;
  // Mapped rows that need no copy need no buffer either.
  in_place_ = mapped && in_order_ && !array_->layout.fortran && !array_->layout.swapped;
  if (in_place_) return;

  const Budget& budget = array_->budget;
  slots_.reserve(kMostSlots);
  try {
    plan_share_ = budget.reserve(plan_bytes(), "plans of chunks");
    add_slot();
  } catch (const Error& error) {
    plan_share_.release();
    engine_.reset();
    if (error.kind() != ErrorKind::kBudget || !array_->stop_mapping(plan_and_slot_bytes())) {
      throw_too_large(error);
    }
    engine_ = array_->engine();
    return make_slots();
  }
  // Reading ahead pays when there is something to wait for. A part stays free for other calls:
  // what makes reading ahead possible leaves less of it than what makes it smoother.
  const auto kept_free = [&] { return budget.limit() / (slots_.size() == 1 ? 16 : 8); };
  try {
    while (!mapped && slots_.size() < kMostSlots &&
           budget.left() >= plan_and_slot_bytes() + kept_free()) {
      add_slot();
    }
    if (slots_.size() > 1) second_plan_share_ = budget.reserve(plan_bytes(), "plans of chunks");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;  // another user of the budget was quicker
  }
  start_reading();
}

void Chunks::Impl::start_reading() {
  ahead_.emplace(array_->layout, *engine_, *this,
                 ReadAhead::Options{.slots = slots_.size(),
                                    .end = chunks_,
                                    .second_reads = second_plan_share_.bytes() > 0,
                                    .merge_gap = array_->merge_gap,
                                    .budget_limit = plan_limit()});
  without_pages_.reserve(slots_.size());
}

std::uint64_t Chunks::Impl::plan_and_slot_bytes() const {
  return plan_bytes() + kSlotOverhead + rows_per_chunk_ * array_->layout.row_bytes +
         listed() * sizeof(std::uint64_t);
}

void Chunks::Impl::throw_too_large(const Error& error) const {
  if (error.kind() != ErrorKind::kBudget) throw error;
  const std::uint64_t row = array_->layout.row_bytes;
  const std::uint64_t left = array_->budget.left(), limit = plan_limit();
  const std::uint64_t plans = RowFeed::memory(limit, 1) + kSlotOverhead;
  // A row that is listed has a number in the list and a pick in the plan.
  const std::uint64_t per_row =
      row + (in_order_
                 ? 0
                 : sizeof(std::uint64_t) + RowFeed::memory(limit, 2) - RowFeed::memory(limit, 1));
  const std::uint64_t fitting = left > plans ? (left - plans) / per_row : 0;
  throw Error(ErrorKind::kBudget, "chunks",
              "a chunk of " + with_commas(rows_per_chunk_) + " rows of " + with_commas(row) +
                  " bytes does not fit: " + with_commas(left) + " bytes are left of a budget of " +
                  array_->budget.describe())
      .in(array_->layout.paths.front())
      .hint(fitting > 0 ? "ask for at most " + with_commas(fitting) + " rows at a time"
                        : "raise the budget: one row and its read buffers do not fit");
}

std::uint64_t Chunks::Impl::rows_in(std::uint64_t chunk) const {
  return std::min(rows_per_chunk_, sequence_.size() - chunk * rows_per_chunk_);
}

Job& Chunks::Impl::prepare(std::size_t number_of_slot, std::uint64_t chunk) {
  Slot& slot = slots_[number_of_slot];
  const Layout& layout = array_->layout;
  const std::uint64_t rows = rows_in(chunk);
  slot.job = Job{};
  slot.job.out = slot.memory.data();
  if (!in_order_) {
    slot.rows.resize(rows);
    sequence_.fill(chunk * rows_per_chunk_, slot.rows);
    slot.job.starts = slot.rows;
    return slot.job;
  }
  slot.rows[0] = chunk * rows_per_chunk_;
  slot.job.starts = slot.rows;
  slot.job.count = rows;
  std::uint64_t taken;
  const Piece piece = piece_of(layout, 0, slot.rows[0], rows, nullptr, taken);
  const std::uint64_t shift = piece.offset % engine_->limits().alignment;
  if (!layout.fortran && taken == rows && shift % layout.dtype.swap_unit() == 0) {
    slot.job.out += shift;
    slot.job.roomy = true;
  }
  return slot.job;
}

void Chunks::Impl::show(const Slot& slot, Chunk& chunk) const {
  chunk.bytes_ = {slot.job.out, chunk.rows_ * chunk.row_bytes_};
  if (!in_order_) chunk.indices_ = slot.rows;
}

bool Chunks::Impl::wait_for(std::chrono::nanoseconds most) {
  require_owned();
  let_go();
  return in_place_ || next_chunk_ == chunks_ || ahead_->wait_for(next_chunk_, most);
}

Pages Chunks::Impl::take_pages() {
  const std::uint64_t chunk = next_chunk_ - 1;
  without_pages_.push_back(chunk);
  holding_ = false;
  return slots_[chunk % slots_.size()].memory.exchange({});
}

void Chunks::Impl::put_pages(Pages pages) {
  const std::uint64_t chunk = without_pages_.front();
  without_pages_.erase(without_pages_.begin());
  slots_[chunk % slots_.size()].memory.exchange(std::move(pages));
  ahead_->give_back(chunk);
}

// Of the chunk at hand, and of hope for pages that were given away.
void Chunks::Impl::let_go() {
  if (holding_) ahead_->give_back(next_chunk_ - 1);
  holding_ = false;
  while (wants_pages()) put_pages(Pages(slot_bytes(), "a chunk's rows"));
}

bool Chunks::Impl::advance(Chunk& chunk) {
  require_owned();
  let_go();
  if (next_chunk_ == chunks_) return false;
  const std::uint64_t number = next_chunk_;
  chunk = Chunk{};
  chunk.dtype_ = array_->layout.dtype;
  chunk.rows_ = rows_in(number);
  chunk.row_bytes_ = array_->layout.row_bytes;
  chunk.position_ = number * rows_per_chunk_;
  chunk.first_row_ = chunk.position_;
  if (!show_in_place(chunk)) {
    if (!ahead_) {  // the one mapped chunk in many that crosses into another file
      add_slot();
      start_reading();
    }
    show(slots_[ahead_->take(number)], chunk);
    holding_ = true;
  }
  ++next_chunk_;
  return true;
}

bool Chunks::Impl::show_in_place(Chunk& chunk) {
  if (!in_place_) return false;
  std::uint64_t taken;
  const Piece piece = piece_of(array_->layout, 0, chunk.first_row_, chunk.rows_, nullptr, taken);
  if (taken < chunk.rows_ || piece.offset % array_->layout.dtype.swap_unit() != 0) return false;
  chunk.bytes_ = {engine_->mapped(piece.file) + piece.offset, piece.length};
  return true;
}

void Chunks::Impl::seek(std::uint64_t chunk) {
  require_owned();
  if (chunk > chunks_) {
    throw Error(ErrorKind::kIndex, "seek",
                "chunk " + with_commas(chunk) + " of " + with_commas(chunks_));
  }
  let_go();
  if (ahead_) ahead_->seek(chunk);
  next_chunk_ = chunk;
}

}  // namespace evenkeel
