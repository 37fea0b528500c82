// Rows and crops of one call: out of the mapping, the cache, or by a plan and the engine.
#include <algorithm>
#include <array>
#include <cstring>

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
  // Crops that were evicted before they could be copied.
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

void Array::Impl::Gatherer::gather(std::span<const std::uint64_t> starts, std::uint64_t count,
                                   std::byte* out, std::span<const std::uint32_t> positions,
                                   CachedCrops* cached) {
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

std::unique_ptr<RowFeed> Array::Impl::Gatherer::make_feed(const Engine& engine,
                                                          std::uint64_t limit) {
  return std::make_unique<RowFeed>(impl.layout, engine, *this, impl.merge_gap, limit, impl.cache());
}

void Array::Impl::Gatherer::run(Engine& engine, RowFeed& feed) {
  try {
    while (!rest.empty() || busy) engine.run(feed);
  } catch (...) {
    feed.reset();
    busy = false;
    throw;
  }
}

Job* Array::Impl::Gatherer::next_job() {
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

bool Array::Impl::Gatherer::has_other_work() const { return meanwhile && meanwhile->any_left(); }

void Array::Impl::Gatherer::do_other_work() {
  constexpr std::size_t kAtATime = 64;  // so that what arrives is soon taken
  meanwhile->copy_some(kAtATime);
}

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
  const auto gather = [&](std::span<const std::uint64_t> wanted,
                          std::span<const std::uint32_t> positions, CachedCrops* cached) {
    const Gatherers::Use gatherer(gatherers_->get());
    gatherer->gather(wanted, count, out, positions, cached);
  };
  // Many starts are read in their order on the disk, and looked up in that order, too.
  if (!cache_ || starts.size() > kSmallGather || !cache_->on()) return gather(starts, {}, nullptr);

  // Find what is missing first, so that the disk reads it while the rest is copied.
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
