// The engine `auto` for data that does not fit the budget. It takes cached bytes from the page
// cache without adding to it, and leaves the rest to another engine.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/per_process.h"
#include "base/readahead.h"
#include "engine/engines.h"
#include "engine/mapping.h"
#include "engine/page_cache.h"
#include "engine/thread_states.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// After this many misses in a row, only one extent in kAskOneIn is looked up in the page cache.
constexpr std::uint32_t kColdStreak = 64;
constexpr std::uint32_t kAskOneIn = 8;
constexpr std::uint64_t kEnoughToTell = 64;  // extents, to decide whether most are cached

// Extents whose bytes are in memory are collected, and copied by several threads if processors are
// idle. Fewer than the least are copied before another thread would wake up.
constexpr std::size_t kLeastCopies = 128;
constexpr std::uint64_t kMostBytesOfCopies = 8 << 20, kLeastBytesOfCopies = 1 << 20;
constexpr std::size_t kMostHelpers = 4;

class CacheFirstEngine final : public Engine {
 public:
  CacheFirstEngine(const Layout& layout, const Budget& budget, std::unique_ptr<Engine> rest)
      : layout_(layout),
        budget_(budget),
        rest_(std::move(rest)),
        rest_limits_(rest_->limits()),
        scratch_(make_scratch(budget, std::max(rest_limits_.max_request, sys::page_size()))),
        states_([this] { return std::make_unique<ThreadStates>(layout_, budget_, scratch_); }) {}

  void run(Feed& feed) override {
    ThreadStates& states = states_.get();
    const ThreadStates::Lock lock(states);
    ThreadState& state = lock.state();
    state.mutex.assert_held();
    state.files.forget_used();
    Filter filter(*this, state, feed);
    // The other engine has one queue. A call that finds everything in the cache does not wait for
    // it.
    if (filter.find_uncached()) {
      state.in_rest = true;
      rest_->run(filter);
    }
    state.files.verify_used();
  }

  void require_unchanged(std::uint32_t file) override {
    ThreadState* state = states_.get().of_this_thread();
    if (!state) return;
    state->mutex.assert_held();
    state->files.verify(file);
    if (state->in_rest) rest_->require_unchanged(file);
  }
  EngineLimits limits() const override {
    EngineLimits limits = rest_limits_;
    // Copying a gap that is in memory costs more than a second request.
    if (mostly_cached_) limits.merge_gap = std::min<std::uint64_t>(limits.merge_gap, 1024);
    return limits;
  }
  EngineReport report() const override {
    EngineReport report = rest_->report();
    report.how = "cached bytes from the page cache, the rest by " + report.how;
    return report;
  }
  unsigned concurrency() const override { return mostly_cached_ && scratch_[1] ? 2 : 1; }
  EngineTotals totals() const override {
    EngineTotals totals = rest_->totals();
    if (auto* const states = states_.if_made()) {
      states->for_each([&](const ThreadState& state) {
        totals.bytes_from_page_cache += state.bytes.load(std::memory_order_relaxed);
      });
    }
    return totals;
  }

 private:
  // How many threads may help a run now: no more than there are processors that no run uses.
  std::size_t helpers() const {
    if (!mostly_cached_ || layout_.segments.size() > ThreadStates::kMostFiles) return 0;
    const std::size_t running = states_.get().running();
    return std::min(most_helpers_, processors_ - std::min(running, processors_));
  }

  // A feed for the other engine. It serves cached extents itself and passes on the others.
  class Filter final : public Feed {
   public:
    Filter(CacheFirstEngine& engine, ThreadState& state, Feed& inner)
        : engine_(engine), state_(state), inner_(inner) {
      state.mutex.assert_held();
      for (auto& residency : state.residency) {
        if (residency) residency->age();
      }
    }

    // Serves extents until one is not cached. `next` returns that one first.
    bool find_uncached() {
      Extent extent;
      if (!next(extent)) return false;
      first_ = extent;
      return true;
    }

    bool next(Extent& extent) override {
      state_.mutex.assert_held();  // within `run`
      if (first_) {
        extent = *std::exchange(first_, std::nullopt);
        return true;
      }
      for (;;) {
        if (!unserved_.empty()) {
          extent = unserved_.back();
          unserved_.pop_back();
          return true;
        }
        if (CopyingThreads* const shared = team(); shared && copy_together(*shared)) continue;
        if (!inner_.next(extent)) return false;
        const bool served = serve(extent);
        count(served);
        if (!served) return true;
      }
    }
    void arrived(const Extent& extent, const std::byte* data) override {
      inner_.arrived(extent, data);
    }
    std::optional<Target> target(const Extent& extent) const override {
      return inner_.target(extent);
    }
    bool has_other_work() const override { return inner_.has_other_work(); }
    void do_other_work() override { inner_.do_other_work(); }
    std::uint64_t most_in_flight() const override { return inner_.most_in_flight(); }

   private:
    // Returns nullptr if no thread may help now, or the budget has no room for a team. The latter
    // is checked once per run, because the check takes locks that all threads share.
    CopyingThreads* team() {
      if (engine_.helpers() == 0) return nullptr;
      if (!team_) team_ = engine_.states_.get().copying_threads(engine_.most_helpers_);
      return *team_;
    }

    // Copies many extents at once, if they are in memory and have targets. Others go to unserved_.
    // Returns false if there was no extent, or another run has the team.
    bool copy_together(CopyingThreads& shared) REQUIRES(state_.mutex) {
      const CopyTeam::Use team(shared.team);
      if (!team) return false;
      std::vector<CachedCopy>& copies = shared.copies;
      copies.clear();
      std::vector<std::unique_ptr<Pin>> pins(state_.files.count());
      Extent extent;
      bool any = false;
      std::uint64_t bytes = 0;
      while (copies.size() < CopyingThreads::kMostCopies && bytes < kMostBytesOfCopies &&
             unserved_.empty() && inner_.next(extent)) {
        any = true;
        auto target = inner_.target(extent);
        std::unique_ptr<Pin>& pin = pins[extent.file];
        if (!pin) pin = std::make_unique<Pin>(state_.files, extent.file);
        if (target) {
          target->length =
              std::min(target->length, state_.files.size(extent.file) - target->offset);
        }
        if (target &&
            residency(extent.file).surely_cached(pin->fd(), target->offset, target->length)) {
          copies.push_back({extent, *target, pin->fd()});
          bytes += target->length;
        } else {
          const bool served = serve(extent);
          count(served);
          if (!served) unserved_.push_back(extent);
        }
      }
      const auto copy = [&](std::size_t i) {
        copies[i].done = read(copies[i].fd, copies[i].target);
      };
      const bool much = copies.size() >= kLeastCopies || bytes >= kLeastBytesOfCopies;
      const bool helped = much && shared.meter.use_help();
      const std::int64_t began = sys::monotonic_ns();
      team.run(copies.size(), helped ? engine_.helpers() : 0, copy);
      if (much) shared.meter.note(helped, sys::monotonic_ns() - began, bytes);
      for (const CachedCopy& one : copies) {
        count(one.done);
        if (one.done) {
          hand_over(one.extent, one.target, nullptr);
        } else {
          ++state_.misses;
          unserved_.push_back(one.extent);
        }
      }
      return any;
    }

    void hand_over(const Extent& extent, const Target& target, const std::byte* data)
        REQUIRES(state_.mutex) {
      state_.misses = 0;
      state_.bytes.store(state_.bytes.load(std::memory_order_relaxed) + target.length,
                         std::memory_order_relaxed);
      Extent served = extent;
      served.from_page_cache = true;
      inner_.arrived(served, data);
    }

    // A run may last as long as the program, so mostly_cached_ is updated during the run.
    void count(bool served) REQUIRES(state_.mutex) {
      state_.served += served;
      if (++state_.asked < kEnoughToTell) return;
      engine_.mostly_cached_ = state_.served * 10 >= state_.asked * 9;
      state_.asked = state_.served = 0;
    }

    Residency& residency(std::uint32_t file) REQUIRES(state_.mutex) {
      auto& residency = state_.residency[file];
      if (!residency) {
        residency = std::make_unique<Residency>(state_.files.size(file),
                                                readahead_window(state_.files.device(file)));
      }
      return *residency;
    }

    bool serve(const Extent& extent) REQUIRES(state_.mutex) {
      if (state_.misses >= kColdStreak && ++state_.misses % kAskOneIn != 0) return false;
      const auto wanted = inner_.target(extent);
      if (!wanted && extent.length > state_.scratch->copies.size()) return false;
      Target target =
          wanted.value_or(Target{extent.offset, extent.length, state_.scratch->copies.data()});
      target.length = std::min(target.length, state_.files.size(extent.file) - target.offset);
      const Pin pin(state_.files, extent.file);
      const bool taken =
          residency(extent.file).surely_cached(pin.fd(), target.offset, target.length)
              ? read(pin.fd(), target)
              : target.length <= state_.scratch->most_mapped() &&
                    is_cached(pin.fd(), target.offset, target.length) &&
                    peek(pin.fd(), target, state_.files.path(extent.file));
      if (!taken) {
        ++state_.misses;
        return false;
      }
      hand_over(extent, target, wanted ? nullptr : target.out);
      return true;
    }

    // A plain read. Used only if everything around is cached: it may trigger readahead into holes.
    static bool read(int fd, const Target& target) {
      std::uint64_t done = 0;
      while (done < target.length) {
        const ssize_t got =
            sys::pread(fd, target.out + done, target.length - done, target.offset + done);
        if (got <= 0) return false;
        done += static_cast<std::uint64_t>(got);
      }
      return true;
    }

    // Copies through a temporary mapping of just these pages: a fault under MADV_RANDOM never reads
    // ahead, and copy_mapped fails with EFAULT if the file was truncated, where touching the
    // mapping would raise SIGBUS. If mapping or copy_mapped is not allowed, the other engine reads.
    static bool peek(int fd, const Target& target, const std::string& path) {
      const std::uint64_t begin = round_down(target.offset, sys::page_size());
      const std::uint64_t skipped = target.offset - begin;
      try {
        const Mapping mapping(fd, begin, skipped + target.length, path);
        mapping.advise(0, mapping.length(), MADV_RANDOM);
        return sys::copy_mapped(target.out, mapping.data() + skipped, target.length) ==
               static_cast<ssize_t>(target.length);
      } catch (const Error&) {
        return false;
      }
    }

    CacheFirstEngine& engine_;
    ThreadState& state_;
    Feed& inner_;
    std::optional<Extent> first_;          // found by find_uncached
    std::optional<CopyingThreads*> team_;  // empty until it is first needed
    std::vector<Extent> unserved_;         // for the other engine
  };

  const Layout& layout_;
  const Budget budget_;
  const std::unique_ptr<Engine> rest_;
  const EngineLimits rest_limits_;
  const std::size_t processors_ = std::max(std::thread::hardware_concurrency(), 1U);
  // A quarter of the processors; the program needs the others.
  const std::size_t most_helpers_ =
      processors_ == 1 ? 0 : std::clamp<std::size_t>(processors_ / 4, 1, kMostHelpers);
  ThreadScratch scratch_;
  mutable PerProcess<ThreadStates> states_;
  std::atomic<bool> mostly_cached_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_cache_first_engine(const Layout& layout, const Budget& budget,
                                                std::unique_ptr<Engine> rest) {
  return std::make_unique<CacheFirstEngine>(layout, budget, std::move(rest));
}

}  // namespace evenkeel
