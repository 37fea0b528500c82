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

// The most that a lane has in its hands at once.
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
        lanes_([this, &layout] { return std::make_unique<Lanes>(layout, scratch_); }) {
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
    const Turn turn(lanes_.get(), scratch_[1].has_value());
    Lane& lane = turn.lane;
    lane.mutex.assert_held();
    lane.files.forget_used();
    Filter filter(*this, lane, feed);
    // The other engine has one queue; who finds all in the cache does not wait for it.
    if (filter.find_uncached()) {
      lane.in_rest = true;
      rest_->run(filter);
    }
    lane.files.verify_used();
  }

  void require_unchanged(std::uint32_t file) override {
    Lane* lane = lanes_.get().of_this_thread();
    if (!lane) return;
    lane->mutex.assert_held();
    lane->files.verify(file);
    if (lane->in_rest) rest_->require_unchanged(file);
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
  unsigned lanes() const override { return mostly_cached_ && scratch_[1] ? 2 : 1; }

 private:
  using ScratchOfLanes = std::array<std::optional<Scratch>, 2>;

  struct Lane {
    // Without readahead of its own, a page that has just been evicted costs no more than itself.
    Lane(const Layout& layout, std::optional<Scratch>& lane_scratch)
        : scratch(lane_scratch),
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

  struct Lanes {
    Lanes(const Layout& layout, ScratchOfLanes& scratch)
        : first(layout, scratch[0]), second(layout, scratch[1]) {}
    Lane* of_this_thread() {
      for (Lane* lane : {&first, &second}) {
        if (lane->runner == std::this_thread::get_id()) return lane;
      }
      return nullptr;
    }
    Lane first, second;
  };

  // Holds a lane for a run: the first that is free.
  struct Turn {
    Turn(Lanes& lanes, bool two) : lane(choose(lanes, two)) {
      lane.mutex.assert_held();
      lane.runner = std::this_thread::get_id();
      lane.in_rest = false;
    }
    ~Turn() NO_THREAD_SAFETY_ANALYSIS {  // `choose` locked one of two
      lane.runner = std::thread::id();
      lane.mutex.unlock();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    static Lane& choose(Lanes& lanes, bool two) NO_THREAD_SAFETY_ANALYSIS {
      if (lanes.first.mutex.try_lock()) return lanes.first;
      if (two && lanes.second.mutex.try_lock()) return lanes.second;
      lanes.first.mutex.lock();
      return lanes.first;
    }
    Lane& lane;
  };

  // Stands between the feed and the other engine, and keeps what it can serve itself.
  class Filter final : public Feed {
   public:
    Filter(CacheFirstEngine& engine, Lane& lane, Feed& inner)
        : engine_(engine), lane_(lane), inner_(inner) {
      lane.mutex.assert_held();
      for (auto& residency : lane.residency) {
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
      lane_.mutex.assert_held();  // within `run`
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
    void count(bool served) REQUIRES(lane_.mutex) {
      lane_.served += served;
      if (++lane_.asked < kEnoughToTell) return;
      engine_.mostly_cached_ = lane_.served * 10 >= lane_.asked * 9;
      lane_.asked = lane_.served = 0;
    }

    Residency& residency(std::uint32_t file) REQUIRES(lane_.mutex) {
      auto& residency = lane_.residency[file];
      if (!residency) {
        residency = std::make_unique<Residency>(lane_.files.size(file),
                                                readahead_window(lane_.files.device(file)));
      }
      return *residency;
    }

    bool serve(const Extent& extent) REQUIRES(lane_.mutex) {
      if (lane_.misses >= kColdStreak && ++lane_.misses % kAskOneIn != 0) return false;
      const auto wanted = inner_.target(extent);
      Target target =
          wanted.value_or(Target{extent.offset, extent.length, lane_.scratch->copies.data()});
      target.length = std::min(target.length, lane_.files.size(extent.file) - target.offset);
      const Pin pin(lane_.files, extent.file);
      const bool taken =
          residency(extent.file).surely_cached(pin.fd(), target.offset, target.length)
              ? read(pin.fd(), target)
              : is_cached(pin.fd(), target.offset, target.length) &&
                    peek(pin.fd(), target, lane_.files.path(extent.file));
      if (!taken) {
        ++lane_.misses;
        return false;
      }
      lane_.misses = 0;
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
    Lane& lane_;
    Feed& inner_;
    std::optional<Extent> held_;
  };

  const std::unique_ptr<Engine> rest_;
  const EngineLimits rest_limits_;
  ScratchOfLanes scratch_;
  PerProcess<Lanes> lanes_;
  std::atomic<bool> mostly_cached_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_cache_first_engine(const Layout& layout, const Budget& budget,
                                                std::unique_ptr<Engine> rest) {
  return std::make_unique<CacheFirstEngine>(layout, budget, std::move(rest));
}

}  // namespace evenkeel
