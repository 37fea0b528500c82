// A Gatherer serves one call of `gather` or `crops` with its own plans. Gatherers has as many of
// them as threads call at once.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "array/impl.h"

namespace evenkeel {

// Every array reserves the plans for a gather of this many starts. A larger gather uses larger
// plans while it runs, if there is room: they find more rows that can be read together.
constexpr std::uint64_t kSmallGather = 1024;
constexpr std::uint64_t kSmallPlanLimit = 1_MiB;  // see RowFeed::memory

// Serves one call at a time.
struct Array::Impl::Gatherer final : JobSource {
  explicit Gatherer(const Impl& array_impl) : impl(array_impl) {}

  // Memory of one gatherer, for calls of up to kSmallGather starts.
  static std::uint64_t memory() {
    return RowFeed::memory(kSmallPlanLimit, kSmallGather) + kSmallGather * sizeof(std::uint64_t);
  }

  static constexpr std::size_t kJobs = 8;  // for a call whose starts are looked up in the cache

  // With `positions`, the starts are those that the cache does not have, and `positions` are their
  // places in `out`.
  void gather(std::span<const std::uint64_t> starts, std::uint64_t count, std::byte* out,
              std::span<const std::uint32_t> positions);
  // Reads what the cache does not have of `crops`. Meanwhile it looks up more of them and copies
  // those that the cache has.
  void gather_missing(CachedCrops& crops, std::uint64_t count, std::byte* out);

  void begin(std::uint64_t count, std::byte* out);
  std::unique_ptr<RowFeed> make_feed(const Engine& engine, std::uint64_t limit);
  void run(RowFeed& feed);
  bool any_left() const;
  Job* next_job() override;
  Job* next_cached_job();
  void job_done(Job&) override { --jobs_open; }
  bool has_other_work() const override;
  void do_other_work() override;

  const Impl& impl;
  Reservation own_share;  // of all but the first, which is part of the bookkeeping
  // State of the current call. The engine calls back on the same thread.
  std::shared_ptr<Engine> planned_for;
  std::unique_ptr<RowFeed> small_feed;
  std::array<Job, kJobs> jobs;  // only the first is used without `cached`
  std::size_t jobs_begun = 0, jobs_open = 0;
  std::span<const std::uint64_t> rest;
  std::span<const std::uint32_t> places;
  CachedCrops* cached = nullptr;
  std::uint64_t most_starts = 0;
  std::byte* next_out = nullptr;
  std::uint64_t rows_each = 0;
};

// As many gatherers as threads call at once, up to the number of processors and what the budget
// allows. Further calls wait.
class Array::Impl::Gatherers {
 public:
  explicit Gatherers(const Impl& impl) : impl_(impl) {
    all_.push_back(std::make_unique<Gatherer>(impl));
    free_.push_back(all_.front().get());
  }

  // Takes one of them for the duration of a call.
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
  // Returns nullptr if there are enough, or if the budget has little left: a gatherer is kept, and
  // others may need the memory.
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
    free_.reserve(all_.size() + 1);  // first, so that giving back cannot fail
    all_.push_back(std::move(gatherer));
    return all_.back().get();
  }

  const Impl& impl_;
  Mutex mutex_;
  CondVar released_;
  std::vector<std::unique_ptr<Gatherer>> all_ GUARDED_BY(mutex_);
  std::vector<Gatherer*> free_ GUARDED_BY(mutex_);
};

}  // namespace evenkeel
