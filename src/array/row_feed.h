// Rows wanted become plans, plans become requests, and what arrives is laid in place.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "array/plan.h"
#include "array/row_cache.h"
#include "engine/engine.h"
#include "format/layout.h"

namespace evenkeel {

// `count` rows from `start` on, and the place of the first.
struct JobRun {
  std::uint64_t start = 0, count = 0;
  std::byte* out = nullptr;
};

// Rows to read, and where to put them: `count` rows from each start, one after the other from `out`
// on. Or `runs`, each with a length and a place of its own.
struct Job {
  std::span<const std::uint64_t> starts;
  std::uint64_t count = 1;
  std::byte* out = nullptr;
  std::span<const JobRun> runs = {};  // if not empty, instead of the three above
  // The memory around `out` has room for alignment, and `out` is as far from alignment as the first
  // row's offset in its file. Then a job that is one piece of one file is read in place. With
  // `runs`, this holds for each run.
  bool roomy = false;
  std::size_t reads() const { return runs.empty() ? starts.size() : runs.size(); }
  // Where each start's rows go, counted in `count` rows; empty: one after the other.
  std::span<const std::uint32_t> positions = {};
  bool looked_up = false;  // in the cache, which does not have them

 private:
  friend class RowFeed;
  std::size_t open_plans = 0;
  bool planned = false;
};

// For job_done: the engine looks when its run ends, and a job may be handed on before that. Throws
// Error (kFormat) when a file of the job is not what it was at open.
void require_unchanged(const Layout& layout, Engine& engine, const Job& job);

// Supplies jobs, and is notified when each is done. Called from Engine::run.
class JobSource {
 public:
  virtual Job* next_job() = 0;  // nullptr: none now
  virtual void job_done(Job& job) = 0;
  // See Feed.
  virtual bool has_other_work() const { return false; }
  virtual void do_other_work() {}

 protected:
  ~JobSource() = default;
};

// The feed that serves jobs, several at a time so that the queue never runs dry between them. It
// plans a bounded number of pieces ahead, however large the job. One thread at a time.
class RowFeed final : public Feed {
 public:
  // `layout`, `engine`, `source` and `cache` (if there is one) must outlive it. `merge_gap`
  // overrides the engine's.
  RowFeed(const Layout& layout, const Engine& engine, JobSource& source,
          std::optional<std::uint64_t> merge_gap, std::uint64_t budget_limit,
          RowCache* cache = nullptr);

  // The most that it allocates, for jobs of up to so many starts.
  static std::uint64_t memory(std::uint64_t budget_limit, std::uint64_t starts);
  static std::uint64_t bytes_of_start() { return sizeof(Pick); }

  bool next(Extent& extent) override;
  void arrived(const Extent& extent, const std::byte* data) override;
  std::optional<Target> target(const Extent& extent) const override {
    return plans_[extent.tag >> 32].plan.target(extent, extent.tag & 0xffffffff);
  }
  bool keeps_copies() const override { return cache_ != nullptr; }
  bool has_other_work() const override { return source_.has_other_work(); }
  void do_other_work() override { source_.do_other_work(); }
  bool cancelled() const override { return cancelled_; }
  // No more requests from now on; from any thread. The run then ends soon.
  void cancel() { cancelled_ = true; }
  // Forgets all jobs, after a run that threw or was cancelled.
  void reset();

 private:
  struct Pick {
    std::uint64_t start, position;
  };
  struct LivePlan {
    Plan plan;
    Job* job = nullptr;  // nullptr: free
    std::size_t outstanding = 0;
    bool handed_out = false;
  };
  // A job has a plan at least, so this is how many small jobs are in flight: 16 batches of 8 rows
  // keep a disk busy. Large jobs have several plans of `window` pieces.
  static constexpr std::size_t kPlans = 16;
  static std::size_t window(std::uint64_t budget_limit);

  bool begin_next_job();
  bool fill(LivePlan& live);
  JobRun run_of(const Pick& pick) const;
  void retire_if_done(LivePlan& live);
  void swap(const Job& job) const;
  void verify_hits();

  const Layout& layout_;
  const Engine& engine_;
  JobSource& source_;
  const std::optional<std::uint64_t> merge_gap_;
  const std::size_t window_;
  RowCache* const cache_;
  std::vector<std::uint32_t> hit_files_;  // whose rows came from the cache, not verified yet
  std::array<LivePlan, kPlans> plans_;
  LivePlan* active_ = nullptr;
  std::atomic<bool> cancelled_ = false;

  // The job being planned, and how far it has come.
  Job* job_ = nullptr;
  std::vector<Pick> picks_;
  std::uint64_t column_ = 0, pick_ = 0, row_ = 0;
};

}  // namespace evenkeel
