#include "array/impl.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "array/row_extents.h"
#include "base/fd.h"
#include "engine/cache.h"
#include "engine/files.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kSmallestBudget = 1_MiB;
// What every array takes, whatever the limit, so that many can share a budget: plans of small
// reads, descriptors, rings, the stack and heap of a reading thread, and results of up to 64 KiB.
constexpr std::uint64_t kBookkeeping = 256_KiB;
// Plans of a gather of so many starts are among it. A larger gather takes larger plans for as long
// as it lasts, if there is room: they find more rows that can be read together.
constexpr std::uint64_t kSmallGather = 1024;
constexpr std::uint64_t kSmallPlanLimit = 1_MiB;  // see RowFeed::memory

std::uint64_t large_gather(const Budget& budget) {
  return std::clamp<std::uint64_t>(budget.limit() / 64 / 16, kSmallGather, 1 << 20);
}

Reservation reserve_bookkeeping(const Budget& budget) {
  if (budget.limit() < kSmallestBudget) {
    throw Error(ErrorKind::kBudget, "open",
                "a budget of " + with_commas(budget.limit()) + " bytes is below the smallest, " +
                    with_commas(kSmallestBudget) + " bytes (1 MiB)")
        .hint("bookkeeping, plans and read buffers take about half of that; give 1MiB or more");
  }
  Reservation share = budget.reserve(kBookkeeping + RowFeed::memory(kSmallPlanLimit, kSmallGather),
                                     "plans and bookkeeping");
  share.keep_in_children();
  return share;
}

}  // namespace

// Serves one call at a time: the engine would make them wait for one another anyway.
struct Array::Impl::Gatherer final : JobSource {
  explicit Gatherer(const Impl& array_impl) : impl(array_impl) {}

  void gather(std::span<const std::uint64_t> starts, std::uint64_t count, std::byte* out)
      EXCLUDES(mutex) {
    MutexLock lock(mutex);
    // The engine may have changed since the last call.
    const std::shared_ptr<Engine> engine = impl.engine();
    if (!small_feed || engine != planned_for) {
      planned_for = engine;
      small_feed = make_feed(*engine, kSmallPlanLimit);
    }
    rest = starts;
    next_out = out;
    rows_each = count;
    most_starts = kSmallGather;
    if (starts.size() > kSmallGather) {
      const std::uint64_t limit = impl.budget.limit(), most = large_gather(impl.budget);
      const auto share = impl.budget.try_reserve_for_read(RowFeed::memory(limit, most), "plans");
      if (share) {
        most_starts = most;
        return run(*engine, *make_feed(*engine, limit));
      }
    }
    run(*engine, *small_feed);
  }

  std::unique_ptr<RowFeed> make_feed(const Engine& engine, std::uint64_t limit) {
    return std::make_unique<RowFeed>(impl.layout, engine, *this, impl.merge_gap, limit);
  }

  void run(Engine& engine, RowFeed& feed) {
    try {
      while (!rest.empty() || busy) engine.run(feed);
    } catch (...) {
      feed.reset();
      busy = false;
      throw;
    }
  }

  Job* next_job() override {
    if (busy || rest.empty()) return nullptr;
    const std::size_t now = std::min<std::size_t>(rest.size(), most_starts);
    job = Job{};
    job.starts = rest.first(now);
    job.count = rows_each;
    job.out = next_out;
    rest = rest.subspan(now);
    next_out += now * rows_each * impl.layout.row_bytes;
    busy = true;
    return &job;
  }
  void job_done(Job&) override { busy = false; }

  const Impl& impl;
  Mutex mutex;
  // Of the call that holds the mutex. The engine calls back on the same thread.
  std::shared_ptr<Engine> planned_for;
  std::unique_ptr<RowFeed> small_feed;
  Job job;
  bool busy = false;
  std::span<const std::uint64_t> rest;
  std::uint64_t most_starts = 0;
  std::byte* next_out = nullptr;
  std::uint64_t rows_each = 0;
};

Array::Impl::Impl(Layout array_layout, const ArrayOptions& options)
    : layout(std::move(array_layout)),
      budget(options.budget),
      merge_gap(options.merge_gap),
      bookkeeping(reserve_bookkeeping(budget)),
      engine_(make_engine(engine_for(options.engine, options.page_cache), layout, budget,
                          budget.limit() / 8)),
      gatherer_(std::make_unique<PerProcess<Gatherer>>(
          [this] { return std::make_unique<Gatherer>(*this); })) {
  note_files_to_drop();
}

Array::Impl::~Impl() = default;

// While it lives, the array copies out of its mapping, which then stays. Empty when the array has
// none.
class Array::Impl::MappedRead {
 public:
  explicit MappedRead(const Impl& impl) : use_(impl.engine_use_.get()) {
    MutexLock lock(use_.mutex);
    while (use_.leaving) use_.changed.wait(use_.mutex);
    if (!impl.engine_ || !impl.engine_->maps_files()) return;
    engine_ = impl.engine_.get();
    ++use_.mapped_reads;
  }
  ~MappedRead() {
    if (!engine_) return;
    MutexLock lock(use_.mutex);
    if (--use_.mapped_reads == 0 && use_.leaving) use_.changed.notify_all();
  }
  MappedRead(const MappedRead&) = delete;
  MappedRead& operator=(const MappedRead&) = delete;
  Engine* engine() const { return engine_; }

 private:
  EngineUse& use_;
  Engine* engine_ = nullptr;
};

std::shared_ptr<Engine> Array::Impl::engine() const {
  EngineUse& use = engine_use_.get();
  MutexLock lock(use.mutex);
  while (use.leaving) use.changed.wait(use.mutex);
  if (!engine_) engine_ = make_engine(EngineKind::kAuto, layout, budget, 0);
  return engine_;
}

std::shared_ptr<Engine> Array::Impl::engine_if_settled() const {
  EngineUse& use = engine_use_.get();
  if (!use.mutex.try_lock()) return nullptr;
  std::shared_ptr<Engine> engine;
  if (!use.leaving) engine = engine_;
  use.mutex.unlock();
  return engine;
}

void Array::Impl::note_files_to_drop() {
  if (!maps_by_choice(engine_.get())) return;
  for (std::uint32_t file = 0; file < layout.segments.size(); ++file) {
    const Fd fd = open_again(layout.segments[file], 0);
    if (!is_cached(fd.get(), 0, layout.segments[file].identity.size)) {
      files_to_drop_.push_back(file);
    }
  }
}

void Array::Impl::drop_files() const {
  for (const std::uint32_t file : files_to_drop_) {
    try {
      const Fd fd = open_again(layout.segments[file], 0);
      require_unchanged(fd.get(), layout.segments[file]);
      sys::fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
    } catch (const Error&) {  // another file by now, and no business of this array
    }
  }
}

bool Array::Impl::maps_by_choice(const Engine* engine) {
  const EngineReport report = engine ? engine->report() : EngineReport{};
  return report.asked == EngineKind::kAuto && report.chosen == EngineKind::kMap;
}

Reservation Array::Impl::room_for(std::uint64_t bytes, std::string_view what) {
  if (auto room = budget.try_reserve(bytes, what)) return std::move(*room);
  stop_mapping(bytes);
  return budget.reserve(bytes, what);
}

Reservation Array::Impl::room_for_read(std::uint64_t bytes, std::string_view what,
                                       const std::function<void()>& while_waiting) {
  if (auto room = budget.try_reserve_for_read(bytes, what)) return std::move(*room);
  if (!budget.fits_beside_reads(bytes)) stop_mapping(bytes);
  return budget.reserve_for_read(bytes, what, while_waiting);
}

bool Array::Impl::stop_mapping(std::uint64_t bytes) {
  EngineUse& use = engine_use_.get();
  MutexLock lock(use.mutex);
  while (use.leaving) use.changed.wait(use.mutex);
  if (!maps_by_choice(engine_.get())) return false;
  use.leaving = true;
  while (use.mapped_reads > 0) use.changed.wait(use.mutex);
  // The mapping's memory goes before its successor takes any: together they would not fit. Where a
  // range of chunks still uses the mapping, both are there, if they fit.
  const bool alone = engine_.use_count() == 1;
  std::exception_ptr failure;
  try {
    if (alone) {
      engine_->release_memory();
      drop_files();
    }
    std::shared_ptr<Engine> next = make_engine(EngineKind::kAuto, layout, budget, kNeverMap);
    budget.require_fits_beside_reads(bytes, "results");
    engine_ = std::move(next);
  } catch (...) {
    failure = std::current_exception();
    // Another user of the budget may have taken the memory meanwhile.
    if (alone && !engine_->reclaim_memory(budget)) engine_.reset();
  }
  use.leaving = false;
  use.changed.notify_all();
  if (failure) std::rethrow_exception(failure);
  return true;
}

std::uint64_t Array::Impl::chunk_rows_that_fit(bool in_order, std::uint64_t copies) const {
  const std::shared_ptr<Engine> engine = this->engine();
  const std::uint64_t page = sys::page_size(), row = layout.row_bytes;
  // A chunk has its rows, the overhang of two blocks and what rounding to pages adds, and a plan.
  // Rows that do not follow one another have a number each, and an entry in the plan.
  const std::uint64_t plan_limit = in_order && !layout.fortran ? 0 : budget.limit();
  const std::uint64_t plan = RowFeed::memory(plan_limit, 1);
  const std::uint64_t fixed =
      plan + 2 * std::max(engine->limits().alignment, page) + 2 * page + sizeof(std::uint64_t);
  const std::uint64_t listed =
      in_order ? 0 : sizeof(std::uint64_t) + RowFeed::memory(plan_limit, 2) - plan;
  const auto fitting = [&](std::uint64_t left, std::uint64_t of_row) {
    return left > fixed ? (left - fixed) / of_row : 0;
  };
  const std::uint64_t left = budget.left();
  const std::uint64_t rows = fitting(left, row * (1 + copies) + listed);
  if (!maps_by_choice(engine.get())) return rows;
  // Without the mapping there is more room, but for the read buffers; what a caller holds was
  // reserved beside the mapping and may be more.
  std::uint64_t mapped = 0;
  for (const Segment& segment : layout.segments) mapped += segment.identity.size;
  const std::uint64_t freed = left + mapped, buffers = most_engine_memory(budget.limit());
  return std::max(rows,
                  freed > buffers ? fitting(freed - buffers, row * (1 + copies) + listed) : 0);
}

void Array::Impl::check_rows(const char* operation, std::uint64_t first,
                             std::uint64_t count) const {
  if (first <= layout.rows && count <= layout.rows - first) return;
  throw Error(
      ErrorKind::kIndex, operation,
      (count == 1 ? "row " + with_commas(first) + " is"
                  : with_commas(count) + " rows from row " + with_commas(first) + " on are") +
          " outside the array, which has " + with_commas(layout.rows) + " rows")
      .in(layout.paths.empty() ? "" : layout.paths.front());
}

void Array::Impl::crops(std::span<const std::uint64_t> starts, std::uint64_t count,
                        std::byte* out) {
  if (starts.empty() || count == 0) return;
  if (const MappedRead mapped(*this); mapped.engine()) {
    copy_mapped(*mapped.engine(), layout, starts, count, out);
    return;
  }
  gatherer_->get().gather(starts, count, out);
}

namespace {

// A part of a piece, from byte `begin` of the file to `end`.
struct PiecePart {
  Piece piece;
  std::uint64_t begin = 0, end = 0;
};

// The pieces of `count` rows from each start, one after the other, in parts of at most `longest`.
class PieceWalk {
 public:
  PieceWalk(const Layout& layout, std::span<const std::uint64_t> starts, std::uint64_t count,
            std::byte* out, std::uint64_t longest)
      : layout_(layout), starts_(starts), count_(count), out_(out), longest_(longest) {}

  bool next(PiecePart& part) {
    if (done_to_ == piece_.end()) {
      if (start_ == starts_.size()) return false;
      std::uint64_t taken;
      std::byte* const row_out = out_ + (start_ * count_ + row_) * layout_.row_bytes;
      piece_ = piece_of(layout_, column_, starts_[start_] + row_, count_ - row_, row_out, taken);
      done_to_ = piece_.offset;
      row_ += taken;
      if (row_ == count_) {
        row_ = 0;
        if (++column_ == columns_of(layout_)) {
          column_ = 0;
          ++start_;
        }
      }
    }
    part = {piece_, done_to_, std::min(piece_.end(), done_to_ + longest_)};
    done_to_ = part.end;
    return true;
  }

 private:
  const Layout& layout_;
  const std::span<const std::uint64_t> starts_;
  const std::uint64_t count_;
  std::byte* const out_;
  const std::uint64_t longest_;
  std::size_t start_ = 0;
  std::uint64_t column_ = 0, row_ = 0;
  Piece piece_;
  std::uint64_t done_to_ = 0;  // of piece_
};

// Copies out of mapped files whose pages may not be in memory: while some pieces are copied, the
// next are read.
class AbsentPagesCopy {
 public:
  AbsentPagesCopy(Engine& engine, const Layout& layout)
      : engine_(engine), scatter_(scatter_of(layout)), bases_(layout.segments.size(), nullptr) {}

  void copy(PieceWalk walk) {
    Group now, next;
    request(walk, now);
    while (!now.parts.empty()) {
      request(walk, next);
      engine_.await(now.pending);
      for (const PiecePart& part : now.parts) {
        copy_piece(part.piece, scatter_, part.begin, part.end,
                   bases_[part.piece.file] + part.begin);
      }
      std::swap(now, next);
    }
    for (std::uint32_t file = 0; file < bases_.size(); ++file) {
      if (bases_[file]) engine_.require_unchanged(file);
    }
  }

 private:
  static constexpr std::uint64_t kMostBytes = 4_MiB;
  struct Group {
    std::vector<PiecePart> parts;
    std::vector<FileRange> ranges, pending;
  };

  void request(PieceWalk& walk, Group& group) {
    group.parts.clear();
    group.ranges.clear();
    PiecePart part;
    for (std::uint64_t bytes = 0; group.parts.size() < most_parts_ && bytes < kMostBytes;
         bytes += part.end - part.begin) {
      if (!walk.next(part)) break;
      const std::uint32_t file = part.piece.file;
      if (!bases_[file]) bases_[file] = engine_.mapped(file);
      group.parts.push_back(part);
      group.ranges.push_back({file, part.begin, part.end - part.begin});
    }
    engine_.request(group.ranges, group.pending);
  }

  Engine& engine_;
  const std::size_t most_parts_ = engine_.ranges_together();
  const Scatter scatter_;
  std::vector<const std::byte*> bases_;
};

}  // namespace

void copy_mapped(Engine& engine, const Layout& layout, std::span<const std::uint64_t> starts,
                 std::uint64_t count, std::byte* out) {
  if (engine.pages_may_be_absent()) {
    if (count > 0) {
      AbsentPagesCopy(engine, layout).copy(PieceWalk(layout, starts, count, out, 1_MiB));
    }
    if (layout.swapped) {
      swap_bytes(out, starts.size() * count * layout.row_bytes, layout.dtype.swap_unit());
    }
    return;
  }
  const Scatter scatter = scatter_of(layout);
  std::vector<const std::byte*> bases(layout.segments.size(), nullptr);
  std::byte* crop_out = out;
  for (const std::uint64_t start : starts) {
    for (std::uint64_t column = 0; column < columns_of(layout); ++column) {
      for (std::uint64_t row = 0, taken; row < count; row += taken) {
        const Piece piece = piece_of(layout, column, start + row, count - row,
                                     crop_out + row * layout.row_bytes, taken);
        const std::byte*& base = bases[piece.file];
        if (!base) base = engine.mapped(piece.file);
        copy_piece(piece, scatter, piece.offset, piece.end(), base + piece.offset);
      }
    }
    crop_out += count * layout.row_bytes;
  }
  if (layout.swapped) {
    swap_bytes(out, starts.size() * count * layout.row_bytes, layout.dtype.swap_unit());
  }
}

}  // namespace evenkeel
