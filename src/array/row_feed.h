// Turns jobs (rows to read) into plans and requests, and copies what arrives to its place.
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

// `count` rows from `start` on, and where to put them.
struct JobRun {
  std::uint64_t start = 0, count = 0;
  std::byte* out = nullptr;
};

// Rows to read, and where to put them: either `count` rows from each start, one after the other at
// `out`, or `runs`, each with its own length and place.
struct Job {
  std::span<const std::uint64_t> starts;
  std::uint64_t count = 1;
  std::byte* out = nullptr;
  std::span<const JobRun> runs = {};  // if not empty, instead of the three above
  // The memory around `out` has room for alignment, and `out` has the same misalignment as the
  // offset of the first row in its file. Then a job that is one piece of one file is read in place.
  // With `runs`, this applies to each run.
  bool roomy = false;
  std::size_t reads() const { return runs.empty() ? starts.size() : runs.size(); }
  // Where the rows of each start go, in units of `count` rows; empty: one after the other.
  std::span<const std::uint32_t> positions = {};
  bool looked_up = false;  // already looked up in the cache, which does not have the rows

 private:
  friend class RowFeed;
  std::size_t open_plans = 0;
  bool planned = false;
};

// Throws Error (kFormat) if a file of the job has changed since open. For job_done: the engine
// checks files at the end of its run, but a job may be handed on before that.
void require_unchanged(const Layout& layout, Engine& engine, const Job& job);

// Supplies jobs, and is notified when each is done. Called from Engine::run.
class JobSource {
 public:
  virtual Job* next_job() = 0;  // nullptr: none now
  virtual void job_done(Job& job) = 0;
  // See Feed.
  virtual bool has_other_work() const { return false; }
  virtual void do_other_work() {}
  virtual std::uint64_t most_in_flight() const { return UINT64_MAX; }

 protected:
  ~JobSource() = default;
};

// The feed for jobs. It serves several at a time, so that the disk's queue does not run empty
// between them. It plans a bounded number of pieces ahead, however large the job. Use it from one
// thread at a time.
class RowFeed final : public Feed {
 public:
  // `layout`, `engine`, `source` and `cache` (may be null) must outlive it. `merge_gap` overrides
  // the engine's.
  RowFeed(const Layout& layout, const Engine& engine, JobSource& source,
          std::optional<std::uint64_t> merge_gap, std::uint64_t budget_limit,
          RowCache* cache = nullptr);

  // The most that it allocates for jobs of up to `starts` starts.
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
  std::uint64_t most_in_flight() const override { return source_.most_in_flight(); }
  bool cancelled() const override { return cancelled_; }
  // Stops requests, so that the run ends soon. May be called from any thread.
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
  // Each job has at least one plan, so this is how many small jobs are in flight: 16 batches of 8
  // rows keep a disk busy. Large jobs have several plans of `window` pieces.
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
  std::vector<std::uint32_t> hit_files_;  // files whose rows came from the cache, not verified yet
  std::array<LivePlan, kPlans> plans_;
  LivePlan* active_ = nullptr;
  std::atomic<bool> cancelled_ = false;

  // The job being planned, and the progress of planning it.
  Job* job_ = nullptr;
  std::vector<Pick> picks_;
  std::uint64_t column_ = 0, pick_ = 0, row_ = 0;
};

}  // namespace evenkeel
