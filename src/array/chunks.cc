#include "array/chunks.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <system_error>
#include <utility>

#include "array/pieces.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// One in use, one being read, one that keeps the queue full in between.
constexpr std::size_t kMostSlots = 3;

}  // namespace

void Chunk::require(DType wanted, std::size_t alignment) const {
  const bool same =
      wanted == dtype_ || (dtype_.kind == Kind::kRecord && wanted.size == dtype_.size);
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
Chunks& Chunks::operator=(Chunks&&) noexcept = default;
Chunks::~Chunks() = default;
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

Chunks::Impl::~Impl() {
  if (owner_ == ::getpid()) {
    stop();
  } else if (reader_.joinable()) {
    reader_.detach();  // after fork: the thread is the parent's
  }
}

std::uint64_t Chunks::Impl::overhang() const {
  return in_order_ ? 2 * engine_->limits().alignment : 0;
}

void Chunks::Impl::add_slot() {
  Slot slot;
  slot.memory = PageBuffer(array_->budget, rows_per_chunk_ * array_->layout.row_bytes + overhang(),
                           "a chunk's rows");
  const std::uint64_t listed = in_order_ ? 1 : rows_per_chunk_;
  slot.list_share = array_->budget.reserve(listed * sizeof(std::uint64_t), "a chunk's row numbers");
  slot.rows.resize(listed);
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
    const std::uint64_t picks = in_order_ ? 1 : rows_per_chunk_;
    plan_share_ = budget.reserve(Mover::memory(budget.limit(), picks), "plans of chunks");
    add_slot();
  } catch (const Error& error) {
    plan_share_.release();
    engine_.reset();
    if (error.kind() != ErrorKind::kBudget || !array_->stop_mapping(bytes_of_one())) {
      throw_too_large(error);
    }
    engine_ = array_->engine();
    return make_slots();
  }
  // Reading ahead pays when there is something to wait for; an eighth stays free for other calls.
  while (!mapped && slots_.size() < kMostSlots &&
         budget.left() >= bytes_of_one() + budget.limit() / 8) {
    add_slot();
  }
  mover_ =
      std::make_unique<Mover>(array_->layout, *engine_, *this, array_->merge_gap, budget.limit());
}

std::uint64_t Chunks::Impl::bytes_of_one() const {
  const std::uint64_t listed = in_order_ ? 1 : rows_per_chunk_;
  return rows_per_chunk_ * array_->layout.row_bytes + listed * 24 + 16_KiB;
}

void Chunks::Impl::throw_too_large(const Error& error) const {
  if (error.kind() != ErrorKind::kBudget) throw error;
  const std::uint64_t row = array_->layout.row_bytes;
  const std::uint64_t left = array_->budget.left();
  const std::uint64_t fitting = left > 64_KiB ? (left - 64_KiB) / (row + (in_order_ ? 0 : 24)) : 0;
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

void Chunks::Impl::prepare(Slot& slot, std::uint64_t chunk) {
  const Layout& layout = array_->layout;
  const std::uint64_t rows = rows_in(chunk);
  slot.chunk = chunk;
  slot.job = Job{};
  slot.job.out = slot.memory.data();
  if (!in_order_) {
    slot.rows.resize(rows);
    sequence_.fill(chunk * rows_per_chunk_, slot.rows);
    slot.job.starts = slot.rows;
    return;
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
}

void Chunks::Impl::show(const Slot& slot, Chunk& chunk) const {
  chunk.bytes_ = {slot.job.out, chunk.rows_ * chunk.row_bytes_};
  if (!in_order_) chunk.indices_ = slot.rows;
}

bool Chunks::Impl::advance(Chunk& chunk) {
  if (owner_ != ::getpid()) {
    throw Error(ErrorKind::kClosed, "chunks", "this range was made before a fork")
        .hint("call chunks() in the child; the array itself may be used there");
  }
  give_back_current();
  if (next_chunk_ == chunks_) return false;
  const std::uint64_t number = next_chunk_;
  chunk = Chunk{};
  chunk.dtype_ = array_->layout.dtype;
  chunk.rows_ = rows_in(number);
  chunk.row_bytes_ = array_->layout.row_bytes;
  chunk.position_ = number * rows_per_chunk_;
  chunk.first_row_ = chunk.position_;
  if (!show_in_place(chunk)) {
    if (slots_.size() > 1) {
      wait_for(number, chunk);
    } else {
      read_now(number, chunk);
    }
  }
  ++next_chunk_;
  return true;
}

void Chunks::Impl::give_back_current() {
  if (!holding_) return;
  holding_ = false;
  std::lock_guard lock(mutex_);
  slot_of(next_chunk_ - 1).state = State::kFree;
  changed_.notify_all();
}

bool Chunks::Impl::show_in_place(Chunk& chunk) {
  if (!in_place_) return false;
  std::uint64_t taken;
  const Piece piece = piece_of(array_->layout, 0, chunk.first_row_, chunk.rows_, nullptr, taken);
  if (taken < chunk.rows_ || piece.offset % array_->layout.dtype.swap_unit() != 0) return false;
  chunk.bytes_ = {engine_->mapped(piece.file) + piece.offset, piece.length};
  return true;
}

void Chunks::Impl::read_now(std::uint64_t number, Chunk& chunk) {
  if (slots_.empty()) add_slot();  // the one mapped chunk in many that crosses into another file
  Slot& slot = slots_[0];
  prepare(slot, number);
  if (engine_->mapped(0)) {
    copy_mapped(*engine_, array_->layout, slot.job.starts, slot.job.count, slot.job.out);
  } else {
    single_ = &slot;
    try {
      engine_->run(*mover_);
    } catch (...) {
      mover_->reset();
      single_ = nullptr;
      throw;
    }
  }
  show(slot, chunk);
}

void Chunks::Impl::wait_for(std::uint64_t number, Chunk& chunk) {
  if (!reader_.joinable() && !start()) {
    slots_.resize(1);  // no thread to be had: read when asked
    return read_now(number, chunk);
  }
  Slot& slot = slot_of(number);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return (slot.state == State::kReady && slot.chunk == number) || failure_ != nullptr;
  });
  if (slot.state != State::kReady || slot.chunk != number) std::rethrow_exception(failure_);
  holding_ = true;
  show(slot, chunk);
}

void Chunks::Impl::seek(std::uint64_t chunk) {
  if (chunk > chunks_) {
    throw Error(ErrorKind::kIndex, "seek",
                "chunk " + with_commas(chunk) + " of " + with_commas(chunks_));
  }
  stop();
  holding_ = false;
  for (Slot& slot : slots_) slot.state = State::kFree;
  failure_ = nullptr;
  next_chunk_ = next_to_read_ = chunk;
}

bool Chunks::Impl::start() {
  stopping_ = false;
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    reader_ = std::thread([this] { read_ahead(); });
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return reader_.joinable();
}

void Chunks::Impl::stop() {
  if (!reader_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  mover_->cancel();
  changed_.notify_all();
  reader_.join();
  reader_ = std::thread();
  mover_->reset();
}

void Chunks::Impl::read_ahead() {
  try {
    std::unique_lock lock(mutex_);
    while (next_to_read_ < chunks_) {
      changed_.wait(lock,
                    [&] { return stopping_ || slot_of(next_to_read_).state == State::kFree; });
      if (stopping_) return;
      lock.unlock();
      engine_->run(*mover_);
      lock.lock();
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
  changed_.notify_all();
}

Job* Chunks::Impl::next_job() {
  if (slots_.size() == 1) {
    Slot* slot = std::exchange(single_, nullptr);
    return slot ? &slot->job : nullptr;
  }
  std::uint64_t chunk;
  {
    std::lock_guard lock(mutex_);
    if (stopping_ || next_to_read_ == chunks_) return nullptr;
    Slot& slot = slot_of(next_to_read_);
    if (slot.state != State::kFree) return nullptr;
    slot.state = State::kReading;
    chunk = next_to_read_++;
  }
  Slot& slot = slot_of(chunk);
  prepare(slot, chunk);
  return &slot.job;
}

void Chunks::Impl::job_done(Job& job) {
  std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) {
    if (&slot.job == &job) slot.state = State::kReady;
  }
  changed_.notify_all();
}

}  // namespace evenkeel
