#include "array/row_feed.h"

#include <algorithm>

#include "array/row_extents.h"
#include "base/checked.h"

namespace evenkeel {

void require_unchanged(const Layout& layout, Engine& engine, const Job& job) {
  std::vector<bool> seen(layout.segments.size());
  const auto look = [&](std::uint64_t start, std::uint64_t count) {
    const std::uint64_t end = start + count;
    for (std::uint32_t file = segment_of(layout, start);
         file < seen.size() && layout.segments[file].first_row < end; ++file) {
      if (!seen[file]) engine.require_unchanged(file);
      seen[file] = true;
    }
  };
  for (const std::uint64_t start : job.starts) look(start, job.count);
  for (const JobRun& run : job.runs) look(run.start, run.count);
}

std::size_t RowFeed::window(std::uint64_t budget_limit) {
  return std::clamp<std::uint64_t>(budget_limit / 16 / Plan::memory(kPlans), 16, 768);
}

std::uint64_t RowFeed::memory(std::uint64_t budget_limit, std::uint64_t starts) {
  return Plan::memory(window(budget_limit)) * kPlans + starts * sizeof(Pick);
}

RowFeed::RowFeed(const Layout& layout, const Engine& engine, JobSource& source,
                 std::optional<std::uint64_t> merge_gap, std::uint64_t budget_limit,
                 RowCache* cache)
    : layout_(layout),
      engine_(engine),
      source_(source),
      merge_gap_(merge_gap),
      window_(window(budget_limit)),
      cache_(cache) {
  for (LivePlan& live : plans_) live.plan.reserve(window_);
}

void RowFeed::reset() {
  for (LivePlan& live : plans_) live.job = nullptr;
  active_ = nullptr;
  job_ = nullptr;
  hit_files_.clear();
  cancelled_ = false;
}

bool RowFeed::begin_next_job() {
  job_ = source_.next_job();
  if (!job_) return false;
  job_->open_plans = 0;
  job_->planned = false;
  picks_.reserve(job_->reads());  // exactly: the budget covers no more
  picks_.resize(job_->reads());
  const bool placed = !job_->positions.empty();
  for (std::size_t i = 0; i < picks_.size(); ++i) {
    picks_[i] = {job_->runs.empty() ? job_->starts[i] : job_->runs[i].start,
                 placed ? job_->positions[i] : i};
  }
  if (!std::ranges::is_sorted(picks_, {}, &Pick::start)) {
    std::ranges::sort(picks_, {}, &Pick::start);
  }
  column_ = pick_ = row_ = 0;
  return true;
}

JobRun RowFeed::run_of(const Pick& pick) const {
  if (!job_->runs.empty()) return job_->runs[pick.position];
  return {pick.start, job_->count, job_->out + pick.position * job_->count * layout_.row_bytes};
}

// Plans one window of pieces of the current job. The outer loop is over columns and the inner one
// over rows, so that pieces come in the order in which they are stored. What the cache has is
// copied at once.
bool RowFeed::fill(LivePlan& live) {
  live.plan.clear(scatter_of(layout_));
  const std::uint64_t columns = job_->count == 0 ? 0 : columns_of(layout_);
  bool cut = false;
  const bool cached = cache_ && !job_->roomy && cache_->on();
  const std::uint64_t block = engine_.limits().block;
  while (column_ < columns && pick_ < picks_.size() && live.plan.size() < window_) {
    const JobRun run = run_of(picks_[pick_]);
    std::byte* row_out = run.out + row_ * layout_.row_bytes;
    std::uint64_t taken;
    const Piece piece =
        piece_of(layout_, column_, run.start + row_, run.count - row_, row_out, taken);
    cut |= taken < run.count;  // at the end of a file: there is no room around its parts
    if (cached && !job_->looked_up && cache_->get(piece)) {
      if (hit_files_.empty() || hit_files_.back() != piece.file) hit_files_.push_back(piece.file);
    } else if (block > 0 && piece.offset % block != 0) {
      // So that a plan has room for whole blocks.
      live.plan.add_or_extend(piece, RowCache::kLargestPiece);
    } else {
      live.plan.add(piece);
    }
    row_ += taken;
    if (row_ == run.count) {
      row_ = 0;
      if (++pick_ == picks_.size()) {
        pick_ = 0;
        ++column_;
      }
    }
  }
  job_->planned = picks_.empty() || column_ == columns;
  EngineLimits limits = engine_.limits();
  if (merge_gap_) limits.merge_gap = *merge_gap_;
  // Request whole blocks of the cache, unless they are longer than the engine allows: `decode` may
  // have small chunks.
  if (cached && cache_->alignment() <= limits.max_request) {
    limits.alignment = std::max(limits.alignment, cache_->alignment());
    if (block == 0) limits.max_request = round_down(limits.max_request, limits.alignment);
  }
  const bool one_piece = job_->planned && live.plan.size() == 1 && job_->open_plans == 0;
  live.plan.build(limits, job_->roomy && (one_piece || (!job_->runs.empty() && !cut)));
  live.job = job_;
  live.outstanding = 0;
  live.handed_out = false;
  ++job_->open_plans;
  return job_->planned;
}

void RowFeed::retire_if_done(LivePlan& live) {
  if (!live.handed_out || live.outstanding > 0) return;
  Job& job = *live.job;
  live.job = nullptr;
  if (--job.open_plans > 0 || !job.planned) return;
  if (layout_.swapped) swap(job);
  if (!hit_files_.empty()) verify_hits();
  source_.job_done(job);
}

void RowFeed::swap(const Job& job) const {
  const std::uint64_t bytes = job.count * layout_.row_bytes;
  const std::uint32_t unit = layout_.dtype.swap_unit();
  for (const JobRun& run : job.runs) swap_bytes(run.out, run.count * layout_.row_bytes, unit);
  if (job.positions.empty()) return swap_bytes(job.out, job.starts.size() * bytes, unit);
  for (const std::uint32_t position : job.positions) {
    swap_bytes(job.out + position * bytes, bytes, unit);
  }
}

// The engine verifies the files that it reads. This verifies the files whose rows the cache had.
void RowFeed::verify_hits() {
  std::ranges::sort(hit_files_);
  hit_files_.erase(std::unique(hit_files_.begin(), hit_files_.end()), hit_files_.end());
  for (const std::uint32_t file : hit_files_) cache_->require_unchanged(file);
  hit_files_.clear();
}

bool RowFeed::next(Extent& extent) {
  while (!cancelled_) {
    if (active_) {
      const auto number = static_cast<std::uint64_t>(active_ - plans_.data());
      if (active_->plan.next(extent, number << 32)) {
        ++active_->outstanding;
        return true;
      }
      active_->handed_out = true;
      retire_if_done(*active_);
      active_ = nullptr;
    }
    const auto free = std::ranges::find(plans_, nullptr, &LivePlan::job);
    if (free == plans_.end() || (!job_ && !begin_next_job())) return false;
    if (fill(*free)) job_ = nullptr;
    active_ = &*free;
  }
  return false;
}

void RowFeed::arrived(const Extent& extent, const std::byte* data) {
  LivePlan& live = plans_[extent.tag >> 32];
  const std::uint64_t run = extent.tag & 0xffffffff;
  live.plan.deliver(extent, run, data);
  if (cache_ && data && data != extent.into && !extent.from_page_cache) {
    live.plan.for_each_whole_piece(extent, run, [&](const Piece& piece) {
      cache_->put(piece, extent.offset, extent.length, data);
    });
  }
  --live.outstanding;
  retire_if_done(live);
}

}  // namespace evenkeel
