#include "array/impl.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "array/gatherers.h"
#include "array/internal.h"
#include "array/row_extents.h"
#include "base/fd.h"
#include "engine/files.h"
#include "engine/page_cache.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kSmallestBudget = 1_MiB;
constexpr std::uint64_t kSmallestBudgetWithCache = 4_MiB;
// Every array reserves this, whatever the limit, so that many arrays can share a budget. It covers
// plans of small reads, descriptors, rings, the stack and heap of a reading thread, and results of
// up to 64 KiB.
constexpr std::uint64_t kBookkeeping = 256_KiB;
constexpr std::uint64_t kFewFiles = 16_KiB;  // the part of it for paths and sizes of files
Reservation reserve_bookkeeping(const Budget& budget, const Layout& layout) {
  if (budget.limit() < kSmallestBudget) {
    throw Error(ErrorKind::kBudget, "open",
                "a budget of " + with_commas(budget.limit()) + " bytes is below the smallest, " +
                    with_commas(kSmallestBudget) + " bytes (1 MiB)")
        .hint("bookkeeping, plans and read buffers take about half of that; use 1MiB or more");
  }
  const std::uint64_t places = layout.stretches.size() * sizeof(Stretch) +
                               layout.offset_batches.size() * sizeof(OffsetBatch);
  std::uint64_t files = layout.segments.size() * sizeof(Segment);
  for (const Segment& segment : layout.segments) files += segment.path.size();
  for (const std::string& path : layout.paths) files += sizeof(std::string) + path.size();
  files -= std::min(files, kFewFiles);
  Reservation share =
      budget.reserve(kBookkeeping + RowFeed::memory(kSmallPlanLimit, kSmallGather) + places + files,
                     "plans and bookkeeping");
  share.keep_in_children();
  return share;
}

// Why RowCache::takes refused.
std::string why_not_cached(const Layout& layout) {
  if (layout.fortran && layout.row_bytes != layout.dtype.size) return "are in Fortran order";
  if (!stored_in_order(layout)) return "are not stored in order in their files";
  if (layout.row_bytes < 256) return "are in " + with_commas(layout.segments.size()) + " files";
  return "have " + with_commas(layout.row_bytes) + " bytes";
}

}  // namespace

// Without an explicit request, small budgets get no cache.
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
  if (layout.rows == 0) return nullptr;
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
                      " bytes was requested, but these rows cannot be cached: they " +
                      why_not_cached(layout))
          .in(layout.paths.empty() ? "" : layout.paths.front())
          .hint("leave out `cache`; only rows in C order of up to 512 KiB can be cached");
    }
    const std::uint64_t left = budget.left(), needed = RowCache::memory();
    if (left <= needed || *options.cache > left - needed) {
      throw Error(ErrorKind::kBudget, "open",
                  "a cache of " + with_commas(*options.cache) +
                      " bytes does not fit: " + with_commas(left) +
                      " bytes are left of a budget of " + with_commas(budget.limit()))
          .in(layout.paths.empty() ? "" : layout.paths.front())
          .hint((left > needed ? "use a cache of at most " + with_commas(left - needed) +
                                     " bytes, or raise the budget"
                               : std::string("raise the budget")) +
                "; without `cache`, the rest of the budget is used");
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
      bookkeeping(reserve_bookkeeping(budget, layout)),
      engine_(make_engine(engine_for(options.engine, options.page_cache), layout, budget,
                          budget.limit() / 8)),
      cache_(make_cache(options)),
      gatherers_(std::make_unique<PerProcess<Gatherers>>(
          [this] { return std::make_unique<Gatherers>(*this); })) {
  note_files_to_drop();
  live_.begin(LiveKind::kArray, *this);
}

Array::Impl::~Impl() { live_.end(); }

template <class Use>
auto Array::Impl::with_engine(const Use& use) const {
  EngineUse& engine_use = engine_use_.get();
  const MutexLock lock(engine_use.mutex);
  engine_use.wait_until_settled();
  if (!engine_) engine_ = make_engine(EngineKind::kAuto, layout, budget, 0);
  return use(engine_);
}

std::shared_ptr<Engine> Array::Impl::engine() const {
  return with_engine([](const std::shared_ptr<Engine>& engine) { return engine; });
}

EngineReport Array::Impl::report() const {
  return with_engine([](const auto& engine) { return engine->report(); });
}

bool Array::Impl::maps_files() const {
  return with_engine([](const auto& engine) { return engine->maps_files(); });
}

Array::Impl::SettledEngine Array::Impl::engine_if_settled() const { return SettledEngine(*this); }

Array::Impl::SettledEngine::SettledEngine(const Impl& impl) : use_(impl.engine_use_.get()) {
  if (!use_.mutex.try_lock()) return;
  if (!use_.leaving && impl.engine_) {
    engine_ = impl.engine_.get();
    ++use_.short_uses;
  }
  use_.mutex.unlock();
}

Array::Impl::SettledEngine::~SettledEngine() {
  if (engine_) use_.end_short_use();
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
    } catch (const Error&) {  // the file was replaced: leave the new one alone
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
  const MutexLock lock(use.mutex);
  use.wait_until_settled();
  if (!maps_by_choice(engine_.get())) return false;
  use.leaving = true;
  while (use.short_uses > 0) use.changed.wait(use.mutex);
  // Release the mapping before its successor takes memory: together they would not fit. If a range
  // of chunks still uses the mapping, both must fit.
  const bool alone = engine_.use_count() == 1;
  std::exception_ptr failure;
  try {
    if (alone) {
      engine_->release_memory();
      drop_files();
    }
    std::shared_ptr<Engine> next = make_engine(EngineKind::kAuto, layout, budget, kNeverMap);
    budget.require_fits_beside_reads(bytes, "results");
    mapped_before_ += engine_->totals().bytes_from_mapping;
    engine_ = std::move(next);
  } catch (...) {
    failure = std::current_exception();
    // Something else may have taken the memory meanwhile.
    if (alone && !engine_->reclaim_memory(budget)) engine_.reset();
  }
  use.leaving = false;
  use.changed.notify_all();
  if (failure) std::rethrow_exception(failure);
  return true;
}

std::uint64_t Array::Impl::chunk_rows_that_fit(bool in_order, std::uint64_t copies) const {
  const auto [alignment, may_stop_mapping] = with_engine([](const auto& engine) {
    return std::pair(engine->limits().alignment, maps_by_choice(engine.get()));
  });
  const std::uint64_t page = sys::page_size(), row = layout.row_bytes;
  // A chunk needs its rows, the overhang of two blocks, what rounding to pages adds, and a plan.
  // Rows that are not consecutive also need a number and an entry in the plan each.
  const std::uint64_t plan_limit = in_order && !layout.fortran ? 0 : budget.limit();
  const std::uint64_t plan = RowFeed::memory(plan_limit, 1);
  const std::uint64_t fixed =
      plan + 2 * std::max<std::uint64_t>(alignment, page) + 2 * page + sizeof(std::uint64_t);
  const std::uint64_t listed =
      in_order ? 0 : sizeof(std::uint64_t) + RowFeed::memory(plan_limit, 2) - plan;
  const auto fitting = [&](std::uint64_t left, std::uint64_t of_row) {
    return left > fixed ? (left - fixed) / of_row : 0;
  };
  const std::uint64_t left = budget.left();
  const std::uint64_t rows = fitting(left, row * (1 + copies) + listed);
  if (!may_stop_mapping) return rows;
  // Without the mapping there is more room, minus the read buffers. What the caller holds was
  // reserved beside the mapping, so either result may be larger.
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

// Not with_engine: counters need no engine.
ArrayStats Array::Impl::stats() const {
  EngineUse& use = engine_use_.get();
  const MutexLock lock(use.mutex);
  use.wait_until_settled();
  return stats_of(engine_.get());
}

template <class Use>
void Array::Impl::use_settled_engine(const Use& use) const {
  EngineUse& engine_use = engine_use_.get();
  if (!engine_use.mutex.try_lock()) return;
  if (!engine_use.leaving && engine_) use(*engine_);
  engine_use.mutex.unlock();
}

std::optional<LiveFigures> Array::Impl::live_figures() const {
  std::optional<LiveFigures> figures;
  use_settled_engine([&](const Engine& settled) { figures = {.reads = stats_of(&settled)}; });
  return figures;
}

LiveLabels Array::Impl::live_labels() const {
  LiveLabels labels;
  if (!layout.paths.empty()) labels.path = layout.paths.front();
  labels.files = layout.paths.size();
  labels.format = layout.format;
  use_settled_engine(
      [&](const Engine& settled) { labels.engine = engine_name(settled.report().chosen); });
  return labels;
}

ArrayStats stats_of_engine(const EngineTotals& totals) {
  ArrayStats stats;
  stats.bytes_from_page_cache = totals.bytes_from_page_cache;
  stats.bytes_from_disk = totals.bytes_from_disk;
  stats.requests = totals.requests;
  stats.in_flight = totals.in_flight;
  stats.wait_ns = totals.wait_ns;
  stats.bytes_from_network = totals.bytes_from_network;
  stats.retries = totals.retries;
  stats.hedges = totals.hedges;
  stats.bytes_from_disk_cache = totals.bytes_from_disk_cache;
  stats.bytes_from_mapping = totals.bytes_from_mapping;
  return stats;
}

ArrayStats Array::Impl::engine_stats(const Engine* engine) const {
  ArrayStats stats;
  if (engine) stats = stats_of_engine(engine->totals());
  stats.bytes_from_mapping += mapped_before_;
  return stats;
}

ArrayStats Array::Impl::stats_of(const Engine* engine) const {
  ArrayStats stats = reads_since(engine_stats(engine), engine_use_.get().before_fork);
  if (!cache_) return stats;
  const RowCache::Totals totals = cache_->totals();
  stats.cache_hits = totals.hits;
  stats.cache_misses = totals.misses;
  stats.cache_bytes = totals.held;
  stats.bytes_from_cache = totals.bytes;
  return stats;
}

}  // namespace evenkeel
