// What is cached is taken from the page cache without adding to it; the rest goes to another
// engine.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "base/readahead.h"
#include "engine/cache.h"
#include "engine/engines.h"
#include "engine/files.h"
#include "engine/mapping.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint32_t kColdStreak = 64;  // after so many misses in a row, ask only now and then
constexpr std::uint32_t kAskOneIn = 8;
constexpr std::uint64_t kEnoughToTell = 64;  // extents, whether most are cached

// Memory of one thread in `run`: where it copies to, and the cached pages it maps meanwhile.
struct Scratch {
  Scratch(const Budget& budget, std::uint64_t bytes)
      : copies(budget, bytes, "copy buffer"),
        mapped(budget.reserve(copies.size() + 2 * sys::page_size(), "cached pages in passing")) {
    copies.keep_in_children();
    mapped.keep_in_children();
  }
  PageBuffer copies;
  Reservation mapped;
};

class CacheFirstEngine final : public Engine {
 public:
  CacheFirstEngine(const Layout& layout, const Budget& budget, std::unique_ptr<Engine> rest)
      : rest_(std::move(rest)),
        rest_limits_(rest_->limits()),
        states_([this, &layout] { return std::make_unique<ThreadStates>(layout, scratch_); }) {
    const std::uint64_t bytes = std::max(rest_limits_.max_request, sys::page_size());
    scratch_[0].emplace(budget, bytes);
    // Copying from the cache is work for a processor, not for the disk, and two do it faster.
    try {
      scratch_[1].emplace(budget, bytes);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBudget) throw;
    }
  }

  void run(Feed& feed) override {
    const StateLock lock(states_.get(), scratch_[1].has_value());
    ThreadState& state = lock.state;
    state.mutex.assert_held();
    state.files.forget_used();
    Filter filter(*this, state, feed);
    // The other engine has one queue; who finds all in the cache does not wait for it.
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
    // A gap that is already in memory costs more to copy than a second request.
    if (mostly_cached_) limits.merge_gap = std::min<std::uint64_t>(limits.merge_gap, 1024);
    return limits;
  }
  EngineReport report() const override {
    EngineReport report = rest_->report();
    report.how = "what is cached from the page cache, the rest by " + report.how;
    return report;
  }
  unsigned concurrency() const override { return mostly_cached_ && scratch_[1] ? 2 : 1; }

 private:
  using ThreadScratch = std::array<std::optional<Scratch>, 2>;

  struct ThreadState {
    // Without readahead of its own, a page that has just been evicted costs no more than itself.
    ThreadState(const Layout& layout, std::optional<Scratch>& thread_scratch)
        : scratch(thread_scratch),
          files(layout, 0, POSIX_FADV_RANDOM),
          residency(layout.segments.size()) {}
    Mutex mutex;
    std::atomic<std::thread::id> runner;  // the thread that is in `run` here
    std::optional<Scratch>& scratch GUARDED_BY(mutex);
    FileSet files GUARDED_BY(mutex);
    // Made when a file is first read.
    std::vector<std::unique_ptr<Residency>> residency GUARDED_BY(mutex);
    std::uint32_t misses GUARDED_BY(mutex) = 0;  // in a row
    // Since `mostly_cached_` was last set.
    std::uint64_t asked GUARDED_BY(mutex) = 0, served GUARDED_BY(mutex) = 0;
    bool in_rest GUARDED_BY(mutex) = false;  // this run has come to the other engine
  };

  struct ThreadStates {
    ThreadStates(const Layout& layout, ThreadScratch& scratch)
        : first(layout, scratch[0]), second(layout, scratch[1]) {}
    ThreadState* of_this_thread() {
      for (ThreadState* state : {&first, &second}) {
        if (state->runner == std::this_thread::get_id()) return state;
      }
      return nullptr;
    }
    ThreadState first, second;
  };

  // Locks a state for a run: the first that is free.
  struct StateLock {
    StateLock(ThreadStates& states, bool two) : state(choose(states, two)) {
      state.mutex.assert_held();
      state.runner = std::this_thread::get_id();
      state.in_rest = false;
    }
    ~StateLock() NO_THREAD_SAFETY_ANALYSIS {  // `choose` locked one of two
      state.runner = std::thread::id();
      state.mutex.unlock();
    }
    StateLock(const StateLock&) = delete;
    StateLock& operator=(const StateLock&) = delete;
    static ThreadState& choose(ThreadStates& states, bool two) NO_THREAD_SAFETY_ANALYSIS {
      if (states.first.mutex.try_lock()) return states.first;
      if (two && states.second.mutex.try_lock()) return states.second;
      states.first.mutex.lock();
      return states.first;
    }
    ThreadState& state;
  };

  // Stands between the feed and the other engine, and keeps what it can serve itself.
  class Filter final : public Feed {
   public:
    Filter(CacheFirstEngine& engine, ThreadState& state, Feed& inner)
        : engine_(engine), state_(state), inner_(inner) {
      state.mutex.assert_held();
      for (auto& residency : state.residency) {
        if (residency) residency->age();
      }
    }

    // Serves what is cached, up to the first extent that is not, which `next` then begins with.
    bool find_uncached() {
      Extent extent;
      if (!next(extent)) return false;
      held_ = extent;
      return true;
    }

    bool next(Extent& extent) override {
      state_.mutex.assert_held();  // within `run`
      if (held_) {
        extent = *std::exchange(held_, std::nullopt);
        return true;
      }
      while (inner_.next(extent)) {
        const bool served = serve(extent);
        count(served);
        if (!served) return true;
      }
      return false;
    }
    void arrived(const Extent& extent, const std::byte* data) override {
      inner_.arrived(extent, data);
    }
    std::optional<Target> target(const Extent& extent) const override {
      return inner_.target(extent);
    }

   private:
    // A run may last as long as the program: what it says of the cache is said on the way.
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
      Target target =
          wanted.value_or(Target{extent.offset, extent.length, state_.scratch->copies.data()});
      target.length = std::min(target.length, state_.files.size(extent.file) - target.offset);
      const Pin pin(state_.files, extent.file);
      const bool taken =
          residency(extent.file).surely_cached(pin.fd(), target.offset, target.length)
              ? read(pin.fd(), target)
              : is_cached(pin.fd(), target.offset, target.length) &&
                    peek(pin.fd(), target, state_.files.path(extent.file));
      if (!taken) {
        ++state_.misses;
        return false;
      }
      state_.misses = 0;
      inner_.arrived(extent, wanted ? nullptr : target.out);
      return true;
    }

    // A plain read. Only where all around is cached: a read may set off readahead into holes.
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

    // Through a mapping of just these pages, made for this call: a fault under MADV_RANDOM never
    // reads ahead, and copy_mapped answers EFAULT where touching a truncated file would be
    // SIGBUS. Where it is forbidden, the other engine reads.
    static bool peek(int fd, const Target& target, const std::string& path) {
      const std::uint64_t begin = round_down(target.offset, sys::page_size());
      const std::uint64_t skipped = target.offset - begin;
      const Mapping mapping(fd, begin, skipped + target.length, path);
      mapping.advise(0, mapping.length(), MADV_RANDOM);
      return sys::copy_mapped(target.out, mapping.data() + skipped, target.length) ==
             static_cast<ssize_t>(target.length);
    }

    CacheFirstEngine& engine_;
    ThreadState& state_;
    Feed& inner_;
    std::optional<Extent> held_;
  };

  const std::unique_ptr<Engine> rest_;
  const EngineLimits rest_limits_;
  ThreadScratch scratch_;
  PerProcess<ThreadStates> states_;
  std::atomic<bool> mostly_cached_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_cache_first_engine(const Layout& layout, const Budget& budget,
                                                std::unique_ptr<Engine> rest) {
  return std::make_unique<CacheFirstEngine>(layout, budget, std::move(rest));
}

}  // namespace evenkeel
