// What is cached is taken from the page cache without adding to it; the rest goes to another
// engine.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/checked.h"
#include "base/memory.h"
#include "base/per_process.h"
#include "base/readahead.h"
#include "engine/cache.h"
#include "engine/engines.h"
#include "engine/files.h"
#include "engine/mapping.h"

namespace evenkeel {
namespace {

constexpr std::uint32_t kColdStreak = 64;  // after so many misses in a row, ask only now and then
constexpr std::uint32_t kAskOneIn = 8;

class CacheFirstEngine final : public Engine {
 public:
  CacheFirstEngine(const Layout& layout, const Budget& budget, std::unique_ptr<Engine> rest)
      : rest_(std::move(rest)),
        rest_limits_(rest_->limits()),
        scratch_(budget, std::max(rest_limits_.max_request, sys::page_size()), "copy buffer"),
        mapped_(budget.reserve(scratch_.size() + 2 * sys::page_size(), "cached pages in passing")),
        lane_([&layout] { return std::make_unique<Lane>(layout); }) {}

  void run(Feed& feed) override {
    Lane& lane = lane_.get();
    std::lock_guard lock(lane.mutex);
    lane.files.forget_used();
    Filter filter(*this, lane, feed);
    rest_->run(filter);
    lane.files.verify_used();
    filter.conclude();
  }

  void require_unchanged(std::uint32_t file) override {
    lane_.get().files.verify(file);
    rest_->require_unchanged(file);
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

 private:
  struct Lane {
    // Without readahead of its own, a page that has just been evicted costs no more than itself.
    explicit Lane(const Layout& layout)
        : files(layout, 0, POSIX_FADV_RANDOM), residency(layout.segments.size()) {}
    std::mutex mutex;
    FileSet files;
    std::vector<std::unique_ptr<Residency>> residency;  // made when a file is first read
    std::uint32_t misses = 0;                           // in a row
  };

  // Stands between the feed and the other engine, and keeps what it can serve itself.
  class Filter final : public Feed {
   public:
    Filter(CacheFirstEngine& engine, Lane& lane, Feed& inner)
        : engine_(engine), lane_(lane), inner_(inner) {
      for (auto& residency : lane.residency) {
        if (residency) residency->age();
      }
    }

    bool next(Extent& extent) override {
      while (inner_.next(extent)) {
        ++asked_;
        if (!serve(extent)) return true;
        ++served_;
      }
      return false;
    }
    void arrived(const Extent& extent, const std::byte* data) override {
      inner_.arrived(extent, data);
    }
    std::optional<Target> target(const Extent& extent) const override {
      return inner_.target(extent);
    }

    void conclude() const {
      if (asked_ >= 16) engine_.mostly_cached_ = served_ * 10 >= asked_ * 9;
    }

   private:
    Residency& residency(std::uint32_t file) {
      auto& residency = lane_.residency[file];
      if (!residency) {
        residency = std::make_unique<Residency>(lane_.files.size(file),
                                                readahead_window(lane_.files.device(file)));
      }
      return *residency;
    }

    bool serve(const Extent& extent) {
      if (lane_.misses >= kColdStreak && ++lane_.misses % kAskOneIn != 0) return false;
      const auto wanted = inner_.target(extent);
      Target target =
          wanted.value_or(Target{extent.offset, extent.length, engine_.scratch_.data()});
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
    // reads ahead, and process_vm_readv answers EFAULT where touching a truncated file would be
    // SIGBUS. Where it is forbidden, the other engine reads.
    static bool peek(int fd, const Target& target, const std::string& path) {
      const std::uint64_t begin = round_down(target.offset, sys::page_size());
      const std::uint64_t skipped = target.offset - begin;
      const Mapping mapping(fd, begin, skipped + target.length, path);
      mapping.advise(0, mapping.length(), MADV_RANDOM);
      const iovec local{target.out, target.length};
      const iovec remote{mapping.data() + skipped, target.length};
      return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) ==
             static_cast<ssize_t>(target.length);
    }

    CacheFirstEngine& engine_;
    Lane& lane_;
    Feed& inner_;
    std::uint64_t asked_ = 0, served_ = 0;
  };

  const std::unique_ptr<Engine> rest_;
  const EngineLimits rest_limits_;
  PageBuffer scratch_;
  Reservation mapped_;
  PerProcess<Lane> lane_;
  std::atomic<bool> mostly_cached_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_cache_first_engine(const Layout& layout, const Budget& budget,
                                                std::unique_ptr<Engine> rest) {
  return std::make_unique<CacheFirstEngine>(layout, budget, std::move(rest));
}

}  // namespace evenkeel
