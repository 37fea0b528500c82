#include "array/chunks.h"

#include <unistd.h>

#include <algorithm>

#include "array/row_extents.h"
#include "base/checked.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// One in use, one being read, and one that keeps the disk's queue full in between. There are more
// for small chunks.
constexpr std::size_t kUsualBuffers = 3;
// Room around the rows of a chunk: the overhang of two blocks of 4 KiB, and what rounding to pages
// adds.
constexpr std::uint64_t kBufferOverhead = 16_KiB;

// For chunks that are copied out of windows, which need no reads of their own.
class NoEngine final : public Engine {
 public:
  void run(Feed& feed) override {
    for (Extent extent; feed.next(extent);) {
    }
  }
  EngineLimits limits() const override { return {}; }
  EngineReport report() const override { return {}; }
  unsigned concurrency() const override { return 2; }  // threads that copy chunks
};

}  // namespace

void Chunk::require(DType wanted, std::size_t alignment) const {
  const bool same =
      wanted == dtype_ || (dtype_.kind == DTypeKind::kRecord && wanted.size == dtype_.size);
  if (!same) {
    throw Error(ErrorKind::kInvalid, "chunk",
                "holds " + dtype_.name() + ", requested as " + wanted.name());
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
  // In a child of fork the reading thread does not exist, and what it was waiting on cannot be
  // destroyed, so it is leaked.
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
      chunks_(rows_per_chunk_ == 0 ? 0 : divide_up(sequence_.size(), rows_per_chunk_)),
      in_order_(order.kind == OrderKind::kSequential && order.world == 1),
      owner_(::getpid()) {
  if (rows_per_chunk == 0) throw Error(ErrorKind::kInvalid, "chunks", "a chunk of 0 rows");
  make_buffers();
}

Chunks::Impl::~Impl() { close(); }

bool Chunks::Impl::close(std::optional<ReadAhead::Clock::time_point> deadline) {
  if (windows_) windows_->interrupt();
  if (ahead_ && !ahead_->close(deadline)) return false;
  if (windows_ && !windows_->close(deadline)) return false;
  if (pool_) pool_->close();
  return true;
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

std::uint64_t Chunks::Impl::buffer_bytes() const {
  return rows_per_chunk_ * array_->layout.row_bytes + overhang();
}

// Consecutive rows are only a few pieces, however many rows there are.
std::uint64_t Chunks::Impl::plan_limit() const {
  return (in_order_ && !array_->layout.fortran) || windows_ ? 0 : array_->budget.limit();
}

std::uint64_t Chunks::Impl::plan_bytes() const {
  return RowFeed::memory(plan_limit(), windows_ ? 0 : listed());
}

void Chunks::Impl::add_buffer() {
  Buffer buffer;
  Reservation memory = array_->budget.reserve(pool_->slot_bytes(), "a chunk's rows");
  buffer.list_share =
      array_->budget.reserve(listed() * sizeof(std::uint64_t), "a chunk's row numbers");
  buffer.rows.resize(listed());
  buffers_.push_back(std::move(buffer));
  pool_->add_slot(std::move(memory));
}

void Chunks::Impl::make_buffers() {
  if (chunks_ == 0) return;
  // Keeps one returned buffer that no slot needs, for copies out of a mapping.
  pool_ = std::make_shared<LendingPool>(buffer_bytes(), "a chunk's rows", 1);
  // If pages may be absent, reading ahead is faster than handing out views of the mapping.
  const bool mapped = engine_->maps_files() && !engine_->pages_may_be_absent();
  // Mapped rows that need no copy need no buffer either.
  in_place_ = mapped && in_order_ && !array_->layout.fortran && !array_->layout.swapped;
  if (in_place_ && !copies_some()) return;

  const Budget& budget = array_->budget;
  if (sequence_.order().kind == OrderKind::kBlocks && !mapped) make_windows();
  const std::uint64_t reads = in_order_ ? 1 : rows_per_chunk_;
  const std::size_t most =
      windows_ ? kUsualBuffers : 1 + batches_ahead(reads, buffer_bytes(), kUsualBuffers - 1);
  buffers_.reserve(most);
  try {
    plan_share_ = budget.reserve(plan_bytes(), "plans of chunks");
    add_buffer();
  } catch (const Error& error) {
    plan_share_.release();
    if (windows_) throw_no_room_beside_windows(error);
    engine_.reset();
    if (error.kind() != ErrorKind::kBudget || !array_->stop_mapping(plan_and_buffer_bytes())) {
      throw_too_large(error);
    }
    engine_ = array_->engine();
    return make_buffers();
  }
  // Reading ahead is worth it only if there is something to wait for. Part of the budget stays free
  // for other calls: little for the second buffer, which makes reading ahead possible, more for the
  // third, which makes it smoother, and most for further ones.
  const auto kept_free = [&] {
    const std::size_t made = buffers_.size();
    return budget.limit() / (made == 1 ? 16 : made < kUsualBuffers ? 8 : 2);
  };
  try {
    while (!mapped && buffers_.size() < most &&
           budget.left() >= plan_and_buffer_bytes() + kept_free()) {
      add_buffer();
    }
    if (buffers_.size() > 1) second_plan_share_ = budget.reserve(plan_bytes(), "plans of chunks");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;  // something else took the memory
  }
  pool_->allocate();
  start_reading();
}

// Whether `show_in_place` fails for a chunk: it crosses into another file, or its rows are not
// aligned.
bool Chunks::Impl::copies_some() const {
  const Layout& layout = array_->layout;
  const auto copies = [&](std::uint64_t first_row, std::uint64_t offset) {
    return first_row % rows_per_chunk_ != 0 || offset % layout.dtype.swap_unit() != 0;
  };
  if (layout.stretches.empty()) {
    return std::ranges::any_of(layout.segments, [&](const Segment& segment) {
      return copies(segment.first_row, segment.data_offset);
    });
  }
  return std::ranges::any_of(layout.stretches, [&](const Stretch& stretch) {
    return copies(stretch.first_row, stretch.offset);
  });
}

void Chunks::Impl::make_windows() {
  const BlockOrder blocks(sequence_.order(), sequence_.rows());
  if (blocks.windows() > 1 && blocks.most_rows() < rows_per_chunk_) {
    const Order& order = sequence_.order();
    throw Error(ErrorKind::kInvalid, "chunks",
                "a window of " + with_commas(order.blocks.window_rows()) + " rows" +
                    (order.world == 1 ? ""
                                      : ", " + with_commas(blocks.most_rows()) + " for each of " +
                                            with_commas(order.world) + " ranks,") +
                    " is smaller than a chunk of " + with_commas(rows_per_chunk_) + " rows")
        .hint(
            "rows of different windows are not mixed: use a window of many chunks, or smaller "
            "chunks");
  }
  windows_ = std::make_unique<WindowReader>(array_, engine_, sequence_.order(),
                                            SampleShape::of_rows(array_->layout));
  no_engine_ = std::make_unique<NoEngine>();
}

void Chunks::Impl::start_reading() {
  ahead_ =
      std::make_shared<ReadAhead>(array_->layout, windows_ ? *no_engine_ : *engine_, *this,
                                  ReadAhead::Options{.slots = buffers_.size(),
                                                     .end = chunks_,
                                                     .second_reads = second_plan_share_.bytes() > 0,
                                                     .merge_gap = array_->merge_gap,
                                                     .budget_limit = plan_limit(),
                                                     .cache = array_->cache(),
                                                     .closed_hint = "call chunks() again",
                                                     .what = "chunks",
                                                     .kind = LiveKind::kChunks});
  pool_->serve(ahead_);
}

std::uint64_t Chunks::Impl::plan_and_buffer_bytes() const {
  return plan_bytes() + kBufferOverhead + rows_per_chunk_ * array_->layout.row_bytes +
         listed() * sizeof(std::uint64_t);
}

void Chunks::Impl::throw_too_large(const Error& error) const {
  if (error.kind() != ErrorKind::kBudget) throw error;
  const std::uint64_t row = array_->layout.row_bytes;
  const std::uint64_t left = array_->budget.left(), limit = plan_limit();
  const std::uint64_t plans = RowFeed::memory(limit, 1) + kBufferOverhead;
  // A listed row has a number in the list and a pick in the plan.
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
      .hint(fitting > 0 ? "use chunks of at most " + with_commas(fitting) + " rows"
                        : "raise the budget: one row and its read buffers do not fit");
}

void Chunks::Impl::throw_no_room_beside_windows(const Error& error) {
  if (error.kind() != ErrorKind::kBudget) throw error;
  const std::uint64_t windows = WindowReader::memory(*array_, *engine_, sequence_.order(),
                                                     SampleShape::of_rows(array_->layout));
  windows_.reset();
  throw Error(ErrorKind::kBudget, "chunks",
              "two windows of the order blocks, " + with_commas(windows) +
                  " bytes, and a chunk of " + with_commas(rows_per_chunk_) + " rows, " +
                  with_commas(plan_and_buffer_bytes()) +
                  " bytes, do not fit: " + with_commas(array_->budget.left()) +
                  " bytes are left of a budget of " + array_->budget.describe())
      .in(array_->layout.paths.front())
      .hint("use a smaller window or smaller chunks, or raise the budget");
}

std::uint64_t Chunks::Impl::rows_in(std::uint64_t chunk) const {
  return std::min(rows_per_chunk_, sequence_.size() - chunk * rows_per_chunk_);
}

Job& Chunks::Impl::prepare(std::size_t slot, std::uint64_t chunk) {
  Buffer& buffer = buffers_[slot];
  const Layout& layout = array_->layout;
  const std::uint64_t rows = rows_in(chunk);
  Job& job = buffer.job;
  job = Job{};
  job.out = pool_->buffer(slot);
  if (windows_) return job;  // nothing to read; `finish` copies it
  if (!in_order_) {
    buffer.rows.resize(rows);
    sequence_.fill(chunk * rows_per_chunk_, buffer.rows);
    job.starts = buffer.rows;
    return job;
  }
  buffer.rows[0] = chunk * rows_per_chunk_;
  job.starts = buffer.rows;
  job.count = rows;
  std::uint64_t taken;
  const Piece piece = piece_of(layout, 0, buffer.rows[0], rows, nullptr, taken);
  const std::uint64_t shift = piece.offset % engine_->limits().alignment;
  if (!layout.fortran && taken == rows && shift % layout.dtype.swap_unit() == 0) {
    job.out += shift;
    job.roomy = true;
  }
  return job;
}

void Chunks::Impl::finish(std::size_t slot, std::uint64_t chunk) {
  if (!windows_) return;
  Buffer& buffer = buffers_[slot];
  buffer.rows.resize(rows_in(chunk));
  windows_->take(chunk * rows_per_chunk_, buffer.rows, buffer.job.out);
}

Chunk Chunks::Impl::describe(std::uint64_t number) const {
  Chunk chunk;
  chunk.dtype_ = array_->layout.dtype;
  chunk.rows_ = rows_in(number);
  chunk.row_bytes_ = array_->layout.row_bytes;
  chunk.position_ = number * rows_per_chunk_;
  chunk.first_row_ = chunk.position_;
  return chunk;
}

void Chunks::Impl::show(const Buffer& buffer, Chunk& chunk) const {
  chunk.bytes_ = {buffer.job.out, chunk.rows_ * chunk.row_bytes_};
  if (!in_order_) chunk.indices_ = buffer.rows;
}

bool Chunks::Impl::show_in_place(Chunk& chunk) {
  if (!in_place_) return false;
  std::uint64_t taken;
  const Piece piece = piece_of(array_->layout, 0, chunk.first_row_, chunk.rows_, nullptr, taken);
  if (taken < chunk.rows_ || piece.offset % array_->layout.dtype.swap_unit() != 0) return false;
  chunk.bytes_ = {engine_->mapped(piece.file) + piece.offset, piece.length};
  engine_->count_mapped(piece.length);
  note_work();
  return true;
}

void Chunks::Impl::give_back() {
  if (holding_) ahead_->give_back(next_chunk_ - 1);
  holding_ = false;
}

bool Chunks::Impl::advance(Chunk& chunk) {
  require_owned();
  give_back();
  if (next_chunk_ == chunks_) return false;
  const std::uint64_t number = next_chunk_;
  chunk = describe(number);
  if (!show_in_place(chunk)) {
    if (in_place_) ahead_->seek(number, number + 1);  // only this chunk is copied
    ahead_->take([&](std::size_t slot, std::uint64_t) { show(buffers_[slot], chunk); });
    holding_ = true;
  }
  ++next_chunk_;
  return true;
}

ReadAhead::Outcome Chunks::Impl::lend(const Use& use, Loan& loan,
                                      ReadAhead::Clock::time_point deadline) {
  require_owned();
  if (in_place_ || chunks_ == 0) return lend_in_place(use, loan);
  pool_->replace_lent();
  const auto taken = [&](std::size_t slot, std::uint64_t number) {
    Chunk chunk = describe(number);
    show(buffers_[slot], chunk);
    use(chunk);
    loan = pool_->lend(slot, number);
    if (number + 1 == chunks_) loan.trim(chunk.bytes_.data() + chunk.bytes_.size());
  };
  return ahead_->take(taken, deadline);
}

// Must be called by one thread at a time.
ReadAhead::Outcome Chunks::Impl::lend_in_place(const Use& use, Loan& loan) {
  if (next_chunk_ == chunks_) return ReadAhead::Outcome::kEnd;
  const std::uint64_t number = next_chunk_;
  Chunk chunk = describe(number);
  if (show_in_place(chunk)) {
    use(chunk);
  } else {
    ahead_->seek(number, number + 1);
    pool_->replace_lent();
    ahead_->take([&](std::size_t slot, std::uint64_t) {
      show(buffers_[slot], chunk);
      use(chunk);
      loan = pool_->lend(slot, number);
    });
  }
  ++next_chunk_;
  return ReadAhead::Outcome::kTaken;
}

void Chunks::Impl::seek(std::uint64_t chunk) {
  require_owned();
  if (chunk > chunks_) {
    throw Error(ErrorKind::kIndex, "seek",
                "chunk " + with_commas(chunk) + " of " + with_commas(chunks_));
  }
  holding_ = false;
  if (windows_) windows_->interrupt();
  if (ahead_) ahead_->seek(chunk, chunks_);
  if (windows_) windows_->seek(chunk * rows_per_chunk_, sequence_.size());
  next_chunk_ = chunk;
}

}  // namespace evenkeel
