// Reads the rows or crops of one call: from the mapping, the cache, or through a plan and the
// engine.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "array/absent_pages.h"
#include "array/gatherers.h"
#include "array/row_extents.h"
#include "base/prefetch.h"

namespace evenkeel {
namespace {

std::uint64_t large_gather(const Budget& budget) {
  return std::clamp<std::uint64_t>(budget.limit() / 64 / 16, kSmallGather, 1 << 20);
}

}  // namespace

// A small call while the cache is on. Its starts are looked up a part at a time: the disk reads
// what is missing of the first part while the next one is looked up. What the cache has is copied
// last.
class Array::Impl::CachedCrops {
 public:
  CachedCrops(Impl& impl, std::span<const std::uint64_t> starts, std::uint64_t count,
              std::byte* out)
      : impl_(impl), starts_(starts), count_(count), out_(out) {
    for (std::size_t i = 0; i < std::min(kLookupsAhead, starts.size()); ++i) {
      impl_.prefetch_lookup(starts[i], count);
    }
  }

  bool any_to_look_up() const { return looked_up_ < starts_.size(); }
  void look_up_some() {
    const std::size_t end = std::min(looked_up_ + kPart, starts_.size());
    for (; looked_up_ < end; ++looked_up_) {
      if (looked_up_ + kLookupsAhead < starts_.size()) {
        impl_.prefetch_lookup(starts_[looked_up_ + kLookupsAhead], count_);
      }
      const auto i = static_cast<std::uint32_t>(looked_up_);
      const std::byte* place = nullptr;
      if (impl_.cache_has(starts_[i], count_, place)) {
        places_[hits_] = place;
        crops_[hits_++] = i;
      } else {
        missing_[misses_] = starts_[i];
        positions_[misses_++] = i;
      }
    }
  }

  // Crops that are not in the cache and not in a job yet. There are at most kJobs such jobs.
  bool any_missing() const { return in_jobs_ < misses_; }
  void take_missing(Job& job) {
    const std::size_t first = std::exchange(in_jobs_, misses_);
    job.starts = std::span(missing_).subspan(first, misses_ - first);
    job.positions = std::span(positions_).subspan(first, misses_ - first);
  }

  bool any_to_copy() const { return next_ < hits_; }
  void copy_some(std::size_t most) {
    constexpr std::size_t kAhead = 4;  // crops being prefetched
    const std::uint64_t bytes = std::min<std::uint64_t>(count_ * impl_.layout.row_bytes, 1_KiB);
    for (; most > 0 && next_ < hits_; --most, ++next_) {
      if (next_ + kAhead < hits_) prefetch_memory(places_[next_ + kAhead], bytes);
      if (!copy(crops_[next_])) crops_[lost_++] = crops_[next_];
    }
  }
  // Crops that were evicted before they could be copied.
  std::span<const std::uint32_t> lost() const { return std::span(crops_).first(lost_); }
  // Throws Error (kFormat) if a file of copied crops has changed.
  void verify() {
    for (std::size_t i = 0; i < files_used_; ++i) impl_.cache_->require_unchanged(files_[i]);
  }

 private:
  static constexpr std::size_t kPart = kSmallGather / Gatherer::kJobs;
  static constexpr std::size_t kLookupsAhead = 16;  // lookups being prefetched

  // Returns false if the cache does not have it.
  bool copy(std::size_t i) {
    return impl_.copy_cached(starts_[i], count_, out_ + i * count_ * impl_.layout.row_bytes, files_,
                             files_used_);
  }

  Impl& impl_;
  const std::span<const std::uint64_t> starts_;
  const std::uint64_t count_;
  std::byte* const out_;
  std::size_t looked_up_ = 0;
  // The first `misses_` entries are missing crops; the first `in_jobs_` of these are in jobs.
  std::array<std::uint64_t, kSmallGather> missing_;
  std::array<std::uint32_t, kSmallGather> positions_;
  std::size_t in_jobs_ = 0, misses_ = 0;
  // In crops_, entries before lost_ are lost, and those from next_ to hits_ are still to be copied.
  // places_ is where a crop was when it was looked up.
  std::array<std::uint32_t, kSmallGather> crops_;
  std::array<const std::byte*, kSmallGather> places_;
  std::size_t lost_ = 0, next_ = 0, hits_ = 0;
  std::array<std::uint32_t, kSmallGather> files_;
  std::size_t files_used_ = 0;
};

void Array::Impl::Gatherer::begin(std::uint64_t count, std::byte* out) {
  // The engine may have changed since the last call.
  const std::shared_ptr<Engine> engine = impl.engine();
  if (!small_feed || engine != planned_for) {
    planned_for = engine;
    small_feed = make_feed(*engine, kSmallPlanLimit);
  }
  rest = {};
  places = {};
  cached = nullptr;
  jobs_begun = jobs_open = 0;
  next_out = out;
  rows_each = count;
  most_starts = kSmallGather;
}

void Array::Impl::Gatherer::gather(std::span<const std::uint64_t> starts, std::uint64_t count,
                                   std::byte* out, std::span<const std::uint32_t> positions) {
  begin(count, out);
  rest = starts;
  places = positions;
  if (starts.size() > kSmallGather) {
    const std::uint64_t limit = impl.budget.limit(), most = large_gather(impl.budget);
    const auto share = impl.budget.try_reserve_for_read(RowFeed::memory(limit, most), "plans");
    if (share) {
      most_starts = most;
      return run(*make_feed(*planned_for, limit));
    }
  }
  run(*small_feed);
}

void Array::Impl::Gatherer::gather_missing(CachedCrops& crops, std::uint64_t count,
                                           std::byte* out) {
  begin(count, out);
  cached = &crops;
  run(*small_feed);
}

std::unique_ptr<RowFeed> Array::Impl::Gatherer::make_feed(const Engine& engine,
                                                          std::uint64_t limit) {
  return std::make_unique<RowFeed>(impl.layout, engine, *this, impl.merge_gap, limit, impl.cache());
}

bool Array::Impl::Gatherer::any_left() const {
  return !rest.empty() || (cached && (cached->any_to_look_up() || cached->any_missing()));
}

void Array::Impl::Gatherer::run(RowFeed& feed) {
  const std::shared_ptr<Engine> engine = planned_for;
  try {
    while (any_left() || jobs_open > 0) engine->run(feed);
  } catch (...) {
    feed.reset();
    throw;
  }
}

Job* Array::Impl::Gatherer::next_job() {
  if (cached) return next_cached_job();
  if (jobs_open > 0 || rest.empty()) return nullptr;
  const std::size_t now = std::min<std::size_t>(rest.size(), most_starts);
  Job& job = jobs[0] = Job{};
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
  ++jobs_open;
  return &job;
}

// While a job is being read, lookups are left to do_other_work, so that the engine starts the reads
// first.
Job* Array::Impl::Gatherer::next_cached_job() {
  while (jobs_open == 0 && !cached->any_missing() && cached->any_to_look_up()) {
    cached->look_up_some();
  }
  if (!cached->any_missing()) return nullptr;
  Job& job = jobs[jobs_begun++] = Job{};
  cached->take_missing(job);
  job.count = rows_each;
  job.out = next_out;
  job.looked_up = true;
  ++jobs_open;
  return &job;
}

bool Array::Impl::Gatherer::has_other_work() const {
  return cached && (cached->any_to_look_up() || cached->any_to_copy());
}

void Array::Impl::Gatherer::do_other_work() {
  constexpr std::size_t kAtATime = 64;  // small, so that arriving data is handled soon
  if (cached->any_to_look_up()) return cached->look_up_some();
  cached->copy_some(kAtATime);
}

// Keeps the mapping of the array from ending while it is copied from. Empty if the array has no
// mapping.
class Array::Impl::MappedRead {
 public:
  explicit MappedRead(const Impl& impl) : use_(impl.engine_use_.get()) {
    const MutexLock lock(use_.mutex);
    use_.wait_until_settled();
    if (!impl.engine_ || !impl.engine_->maps_files()) return;
    engine_ = impl.engine_.get();
    ++use_.short_uses;
  }
  ~MappedRead() {
    if (engine_) use_.end_short_use();
  }
  MappedRead(const MappedRead&) = delete;
  MappedRead& operator=(const MappedRead&) = delete;
  Engine* engine() const { return engine_; }

 private:
  EngineUse& use_;
  Engine* engine_ = nullptr;
};

void Array::Impl::crops(std::span<const std::uint64_t> starts, std::uint64_t count,
                        std::byte* out) {
  if (starts.empty() || count == 0) return;
  copy_crops(starts, count, out);
  note_work();
}

void Array::Impl::copy_crops(std::span<const std::uint64_t> starts, std::uint64_t count,
                             std::byte* out) {
  if (const MappedRead mapped(*this); mapped.engine()) {
    copy_mapped(*mapped.engine(), layout, starts, count, out);
    return;
  }
  // Many starts are read in their order on the disk, and looked up in that order, too.
  if (!cache_ || starts.size() > kSmallGather || !cache_->on()) {
    return Gatherers::Use(gatherers_->get())->gather(starts, count, out, {});
  }
  CachedCrops cached(*this, starts, count, out);
  while (!cached.any_missing() && cached.any_to_look_up()) cached.look_up_some();
  if (cached.any_missing()) {
    Gatherers::Use(gatherers_->get())->gather_missing(cached, count, out);
  }
  cached.copy_some(starts.size());
  cached.verify();
  const std::span<const std::uint32_t> lost = cached.lost();
  if (lost.empty()) return;
  std::array<std::uint64_t, kSmallGather> again;
  for (std::size_t i = 0; i < lost.size(); ++i) again[i] = starts[lost[i]];
  Gatherers::Use(gatherers_->get())->gather(std::span(again).first(lost.size()), count, out, lost);
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

// Notes each file once while `files` has room, and verifies further ones at once.
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
  note_work();
  return true;
}

void copy_mapped(Engine& engine, const Layout& layout, std::span<const std::uint64_t> starts,
                 std::uint64_t count, std::byte* out) {
  if (engine.pages_may_be_absent()) return copy_absent(engine, layout, starts, count, out);
  engine.count_mapped(starts.size() * count * layout.row_bytes);
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
