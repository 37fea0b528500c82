#include "array/impl.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <thread>

#include "array/absent_pages.h"
#include "array/row_extents.h"
#include "base/fd.h"
#include "base/prefetch.h"
#include "engine/cache.h"
#include "engine/files.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kSmallestBudget = 1_MiB;
constexpr std::uint64_t kSmallestBudgetWithCache = 4_MiB;
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

// The crops of a call that the cache has. They are copied while the disk reads the others.
class Array::Impl::CachedCrops {
 public:
  CachedCrops(Impl& impl, std::span<const std::uint64_t> starts, std::uint64_t count,
              std::byte* out)
      : impl_(impl), starts_(starts), count_(count), out_(out) {}

  bool any_left() const { return next_ < end_; }
  // Crop i, which seems to be at `place`.
  void add(std::size_t i, const std::byte* place) {
    places_[end_] = place;
    crops_[end_++] = static_cast<std::uint32_t>(i);
  }
  void copy_some(std::size_t most) {
    constexpr std::size_t kAhead = 4;  // crops on their way to the processor
    const std::uint64_t bytes = std::min<std::uint64_t>(count_ * impl_.layout.row_bytes, 1_KiB);
    for (; most > 0 && next_ < end_; --most, ++next_) {
      if (next_ + kAhead < end_) prefetch_memory(places_[next_ + kAhead], bytes);
      if (!copy(crops_[next_])) crops_[lost_++] = crops_[next_];
    }
  }
  // Those that the cache no longer had when their turn came.
  std::span<const std::uint32_t> lost() const { return std::span(crops_).first(lost_); }
  // Throws Error (kFormat) when a file they are from is not what it was.
  void verify() {
    for (std::size_t i = 0; i < files_used_; ++i) impl_.cache_->require_unchanged(files_[i]);
  }

 private:
  // False where the cache does not have it.
  bool copy(std::size_t i) {
    return impl_.copy_cached(starts_[i], count_, out_ + i * count_ * impl_.layout.row_bytes, files_,
                             files_used_);
  }

  Impl& impl_;
  const std::span<const std::uint64_t> starts_;
  const std::uint64_t count_;
  std::byte* const out_;
  // Of crops_, those before lost_ are lost, those from next_ to end_ are still to be copied.
  std::array<std::uint32_t, kSmallGather> crops_;
  std::array<const std::byte*, kSmallGather> places_;
  std::size_t lost_ = 0, next_ = 0, end_ = 0;
  std::array<std::uint32_t, kSmallGather> files_;
  std::size_t files_used_ = 0;
};

// Serves one call at a time.
struct Array::Impl::Gatherer final : JobSource {
  explicit Gatherer(const Impl& array_impl) : impl(array_impl) {}

  // What one takes, for a call of up to kSmallGather starts.
  static std::uint64_t memory() {
    return RowFeed::memory(kSmallPlanLimit, kSmallGather) + kSmallGather * sizeof(std::uint64_t);
  }

  // With `positions`, starts that the cache does not have, and their places in `out`; and others
  // that it does have, to be copied meanwhile.
  void gather(std::span<const std::uint64_t> starts, std::uint64_t count, std::byte* out,
              std::span<const std::uint32_t> positions, CachedCrops* cached) {
    // The engine may have changed since the last call.
    const std::shared_ptr<Engine> engine = impl.engine();
    if (!small_feed || engine != planned_for) {
      planned_for = engine;
      small_feed = make_feed(*engine, kSmallPlanLimit);
    }
    rest = starts;
    places = positions;
    meanwhile = cached;
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
    return std::make_unique<RowFeed>(impl.layout, engine, *this, impl.merge_gap, limit,
                                     impl.cache());
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
    if (places.empty()) {
      next_out += now * rows_each * impl.layout.row_bytes;
    } else {
      job.positions = places.first(now);
      job.looked_up = true;
      places = places.subspan(now);
    }
    busy = true;
    return &job;
  }
  void job_done(Job&) override { busy = false; }
  bool has_other_work() const override { return meanwhile && meanwhile->any_left(); }
  void do_other_work() override {
    constexpr std::size_t kAtATime = 64;  // so that what arrives is soon taken
    meanwhile->copy_some(kAtATime);
  }

  const Impl& impl;
  Reservation own_share;  // of the second one and later ones; the first is part of the bookkeeping
  // Of the call that uses it. The engine calls back on the same thread.
  std::shared_ptr<Engine> planned_for;
  std::unique_ptr<RowFeed> small_feed;
  Job job;
  bool busy = false;
  std::span<const std::uint64_t> rest;
  std::span<const std::uint32_t> places;
  CachedCrops* meanwhile = nullptr;
  std::uint64_t most_starts = 0;
  std::byte* next_out = nullptr;
  std::uint64_t rows_each = 0;
};

// As many as threads call at once, up to the number of processors and what the budget allows.
// Others wait.
class Array::Impl::Gatherers {
 public:
  explicit Gatherers(const Impl& impl) : impl_(impl) {
    all_.push_back(std::make_unique<Gatherer>(impl));
    free_.push_back(all_.front().get());
  }

  // One of them for the time of a call.
  class Use {
   public:
    explicit Use(Gatherers& owner) : owner_(owner), gatherer_(owner.take()) {}
    ~Use() { owner_.give_back(gatherer_); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Gatherer* operator->() const { return gatherer_; }

   private:
    Gatherers& owner_;
    Gatherer* const gatherer_;
  };

 private:
  Gatherer* take() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (free_.empty()) {
      if (Gatherer* added = add()) return added;
      released_.wait(mutex_);
    }
    Gatherer* const gatherer = free_.back();
    free_.pop_back();
    return gatherer;
  }
  void give_back(Gatherer* gatherer) EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      free_.push_back(gatherer);
    }
    released_.notify_one();
  }
  // nullptr: there are enough, or the budget has no room. It stays: others may need what is left.
  Gatherer* add() REQUIRES(mutex_) {
    constexpr std::uint64_t kTimesLeft = 64;
    const std::size_t most = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 64);
    if (all_.size() >= most || impl_.budget.left() < kTimesLeft * Gatherer::memory()) {
      return nullptr;
    }
    auto share = impl_.budget.try_reserve(Gatherer::memory(), "plans of a thread");
    if (!share) return nullptr;
    auto gatherer = std::make_unique<Gatherer>(impl_);
    gatherer->own_share = std::move(*share);
    all_.push_back(std::move(gatherer));
    free_.reserve(all_.size());
    return all_.back().get();
  }

  const Impl& impl_;
  Mutex mutex_;
  CondVar released_;
  std::vector<std::unique_ptr<Gatherer>> all_ GUARDED_BY(mutex_);
  std::vector<Gatherer*> free_ GUARDED_BY(mutex_);
};

// Small budgets have better uses, unless it is asked for.
std::unique_ptr<RowCache> Array::Impl::make_cache(const ArrayOptions& options) {
  const bool fills = engine_for(options.engine, options.page_cache) == EngineKind::kFill;
  if (options.cache == 0 || (fills && !options.cache)) return nullptr;
  if (fills) {
    throw Error(ErrorKind::kInvalid, "open",
                "a cache of " + with_commas(*options.cache) +
                    " bytes cannot be combined with page_cache \"fill\": rows are already copied "
                    "from the page cache")
        .hint("leave out one of the two");
  }
  if (!options.cache) {
    const bool wanted = options.engine == EngineKind::kAuto && RowCache::takes(layout) &&
                        budget.limit() >= kSmallestBudgetWithCache;
    auto share =
        wanted ? budget.try_reserve(RowCache::memory(), "cache bookkeeping") : std::nullopt;
    if (!share) return nullptr;
    cache_share_ = std::move(*share);
  } else {
    if (!RowCache::takes(layout)) {
      throw Error(ErrorKind::kInvalid, "open",
                  "a cache of " + with_commas(*options.cache) +
                      " bytes was asked for, but these rows cannot be cached: they " +
                      (layout.fortran ? "are in Fortran order"
                                      : "have " + with_commas(layout.row_bytes) + " bytes"))
          .in(layout.paths.empty() ? "" : layout.paths.front())
          .hint("leave the cache out; rows in C order of up to 512 KiB can be cached");
    }
    const std::uint64_t left = budget.left(), needed = RowCache::memory();
    if (left <= needed || *options.cache > left - needed) {
      throw Error(ErrorKind::kBudget, "open",
                  "a cache of " + with_commas(*options.cache) +
                      " bytes does not fit: " + with_commas(left) +
                      " bytes are left of a budget of " + with_commas(budget.limit()))
          .in(layout.paths.empty() ? "" : layout.paths.front())
          .hint((left > needed ? "ask for a cache of at most " + with_commas(left - needed) +
                                     " bytes, or raise the budget"
                               : std::string("raise the budget")) +
                "; without `cache`, what the budget leaves is used");
    }
    cache_share_ = budget.reserve(needed, "cache bookkeeping");
  }
  cache_share_.keep_in_children();
  return std::make_unique<RowCache>(layout, budget, options.cache.value_or(UINT64_MAX));
}

Array::Impl::Impl(Layout array_layout, const ArrayOptions& options)
    : layout(std::move(array_layout)),
      budget(options.budget),
      merge_gap(options.merge_gap),
      bookkeeping(reserve_bookkeeping(budget)),
      engine_(make_engine(engine_for(options.engine, options.page_cache), layout, budget,
                          budget.limit() / 8)),
      cache_(make_cache(options)),
      gatherers_(std::make_unique<PerProcess<Gatherers>>(
          [this] { return std::make_unique<Gatherers>(*this); })) {
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
  const auto gather = [&](std::span<const std::uint64_t> wanted,
                          std::span<const std::uint32_t> positions, CachedCrops* cached) {
    const Gatherers::Use gatherer(gatherers_->get());
    gatherer->gather(wanted, count, out, positions, cached);
  };
  // Many starts are read in their order on the disk, and looked up in that order, too.
  if (!cache_ || starts.size() > kSmallGather || !cache_->on()) return gather(starts, {}, nullptr);

  // What is missing is looked for first, so that the disk reads it while the rest is copied.
  CachedCrops cached(*this, starts, count, out);
  std::array<std::uint64_t, kSmallGather> missing;
  std::array<std::uint32_t, kSmallGather> positions;
  std::size_t missed = 0;
  constexpr std::size_t kAhead = 16;  // lookups on their way to the processor
  for (std::size_t i = 0; i < std::min(kAhead, starts.size()); ++i) {
    prefetch_lookup(starts[i], count);
  }
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (i + kAhead < starts.size()) prefetch_lookup(starts[i + kAhead], count);
    const std::byte* place = nullptr;
    if (cache_has(starts[i], count, place)) {
      cached.add(i, place);
    } else {
      missing[missed] = starts[i];
      positions[missed++] = static_cast<std::uint32_t>(i);
    }
  }
  if (missed > 0) {
    gather(std::span(missing).first(missed), std::span(positions).first(missed), &cached);
  }
  cached.copy_some(starts.size());
  cached.verify();
  const std::span<const std::uint32_t> lost = cached.lost();
  if (lost.empty()) return;
  for (std::size_t i = 0; i < lost.size(); ++i) missing[i] = starts[lost[i]];
  gather(std::span(missing).first(lost.size()), lost, nullptr);
}

void Array::Impl::prefetch_lookup(std::uint64_t start, std::uint64_t count) {
  std::uint64_t taken;
  cache_->prefetch(piece_of(layout, 0, start, count, nullptr, taken));
}

bool Array::Impl::cache_has(std::uint64_t start, std::uint64_t count, const std::byte*& place) {
  for (std::uint64_t row = 0, taken; row < count; row += taken) {
    const Piece piece = piece_of(layout, 0, start + row, count - row, nullptr, taken);
    const std::byte* found = nullptr;
    if (!cache_->has(piece, found)) return false;
    if (!place) place = found;
  }
  return true;
}

// Files are noted once each, as far as `files` has room; beyond that they are verified at once.
bool Array::Impl::copy_cached(std::uint64_t start, std::uint64_t count, std::byte* out,
                              std::span<std::uint32_t> files, std::size_t& files_used) {
  for (std::uint64_t row = 0, taken; row < count; row += taken) {
    const Piece piece =
        piece_of(layout, 0, start + row, count - row, out + row * layout.row_bytes, taken);
    if (!cache_->get(piece)) return false;
    if (std::ranges::find(files.first(files_used), piece.file) !=
        files.begin() + static_cast<std::ptrdiff_t>(files_used)) {
      continue;
    }
    if (files_used < files.size()) {
      files[files_used++] = piece.file;
    } else {
      cache_->require_unchanged(piece.file);
    }
  }
  if (layout.swapped) swap_bytes(out, count * layout.row_bytes, layout.dtype.swap_unit());
  return true;
}

bool Array::Impl::crop_from_cache(std::uint64_t start, std::uint64_t count, std::byte* out) {
  if (!cache_ || !cache_->on() || start > layout.rows || count > layout.rows - start) return false;
  std::array<std::uint32_t, 4> files;
  std::size_t files_used = 0;
  if (!copy_cached(start, count, out, files, files_used)) return false;
  for (std::size_t i = 0; i < files_used; ++i) cache_->require_unchanged(files[i]);
  return true;
}

ArrayStats Array::Impl::stats() const {
  ArrayStats stats;
  if (const std::shared_ptr<Engine> engine = this->engine()) {
    const EngineTotals totals = engine->totals();
    stats.bytes_from_page_cache = totals.bytes_from_page_cache;
    stats.bytes_from_disk = totals.bytes_from_disk;
    stats.requests = totals.requests;
    stats.in_flight = totals.in_flight;
    stats.wait_ns = totals.wait_ns;
  }
  if (!cache_) return stats;
  const RowCache::Totals totals = cache_->totals();
  stats.cache_hits = totals.hits;
  stats.cache_misses = totals.misses;
  stats.cache_bytes = totals.held;
  stats.bytes_from_cache = totals.bytes;
  return stats;
}

void copy_mapped(Engine& engine, const Layout& layout, std::span<const std::uint64_t> starts,
                 std::uint64_t count, std::byte* out) {
  if (engine.pages_may_be_absent()) return copy_absent(engine, layout, starts, count, out);
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
