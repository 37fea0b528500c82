// The engine `advise`: one mapping for the life of the engine. madvise tells the kernel what to
// read and what to drop.
#include <algorithm>
#include <vector>

#include "base/checked.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "engine/engines.h"
#include "engine/files.h"
#include "engine/mapping.h"
#include "engine/page_cache.h"

namespace evenkeel {
namespace {

constexpr std::size_t kMostExtents = 64;  // requested together, so that the disk has a queue
constexpr std::uint64_t kFaultAround = 64 << 10;  // a fault maps cached pages this far around it
// Each 2 MiB touched costs a page of page tables, which only unmapping frees.
constexpr std::uint64_t kTableSpan = 2 << 20;

class AdviseEngine final : public Engine {
 public:
  AdviseEngine(const Layout& layout, const Budget& budget)
      : AdviseEngine(layout, budget, buffer_size(budget, 256_KiB, 8_MiB)) {}

  void run(Feed& feed) override {
    ProcessState& state = state_.get();
    const MutexLock lock(state.mutex);
    state.files.forget_used();
    std::vector<Extent> batch;
    Extent extent;
    bool held_over = false;
    while (true) {
      batch.clear();
      std::uint64_t bytes = 0;
      while (batch.size() < kMostExtents && (held_over || feed.next(extent))) {
        const std::uint64_t cost = touched(extent);
        held_over = !batch.empty() && bytes + cost > share_bytes();
        if (held_over) break;
        batch.push_back(extent);
        bytes += cost;
      }
      if (batch.empty()) break;  // `next` returned false with nothing in flight
      bring(state, batch, feed);
    }
    state.files.verify_used();
  }

  // Called by feeds, within `run`.
  void require_unchanged(std::uint32_t file) override {
    ProcessState& state = state_.get();
    state.mutex.assert_held();
    state.files.verify(file);
  }
  EngineLimits limits() const override { return limits_; }
  EngineReport report() const override {
    return {EngineKind::kAdvise, EngineKind::kAdvise,
            "one mapping; MADV_RANDOM and MADV_WILLNEED before reads, MADV_DONTNEED and "
            "POSIX_FADV_DONTNEED after them",
            ""};
  }

 private:
  struct ProcessState {
    explicit ProcessState(const Layout& layout)
        : files(layout, 0), mappings(layout.segments.size()) {}
    Mutex mutex;
    FileSet files GUARDED_BY(mutex);
    std::vector<Mapping> mappings GUARDED_BY(mutex);
    // Pages of page tables that the mappings may have by now.
    std::uint64_t tables GUARDED_BY(mutex) = 0;
  };
  struct Wanted {
    Extent extent;
    std::uint64_t length;
    Uncached uncached;  // only these pages are dropped afterwards
    bool apart;         // read through its own mapping
  };

  AdviseEngine(const Layout& layout, const Budget& budget, std::uint64_t window)
      : layout_(layout),
        limits_{sys::page_size(), window / 2 - kFaultAround, kMergeGap},
        most_tables_(std::max<std::uint64_t>(window / sys::page_size(), 64)),
        share_(budget.reserve(window + most_tables_ * sys::page_size(),
                              "mapped pages and their page tables")),
        state_([&layout] { return std::make_unique<ProcessState>(layout); }) {
    share_.keep_in_children();
  }

  std::uint64_t share_bytes() const { return share_.bytes() - most_tables_ * sys::page_size(); }
  // Whether no page that a fault in the extent may map is cached yet. Also false if the kernel does
  // not say.
  static bool surely_cold(int fd, const Extent& extent) {
    const std::uint64_t begin = extent.offset - std::min(extent.offset, kFaultAround);
    sys::CacheStat stat{};
    return sys::cachestat(fd, begin, extent.offset + extent.length + kFaultAround - begin, &stat) ==
               0 &&
           stat.cached == 0;
  }
  // The most bytes that an extent may map, neighbouring pages included.
  static std::uint64_t touched(const Extent& extent) { return extent.length + 2 * kFaultAround; }

  Mapping& mapping(ProcessState& state, std::uint32_t file, int fd) REQUIRES(state.mutex) {
    if (state.tables > most_tables_) {
      for (Mapping& old : state.mappings) old.reset();
      state.tables = 0;
    }
    Mapping& mapping = state.mappings[file];
    if (!mapping) {
      mapping = Mapping(fd, 0, state.files.size(file), state.files.path(file));
      mapping.advise(0, mapping.length(), MADV_RANDOM);
      mapping.advise(0, mapping.length(), MADV_DONTDUMP);
    }
    return mapping;
  }

  void bring(ProcessState& state, const std::vector<Extent>& batch, Feed& feed)
      REQUIRES(state.mutex) {
    std::vector<Wanted> wanted;
    std::exception_ptr failure;
    try {
      for (const Extent& extent : batch) {
        const Pin pin(state.files, extent.file);
        const std::uint64_t length =
            std::min(extent.length, state.files.size(extent.file) - extent.offset);
        wanted.push_back({extent, length, Uncached(pin.fd(), extent.offset, length),
                          !surely_cold(pin.fd(), extent)});
        if (!wanted.back().uncached.empty()) {
          mapping(state, extent.file, pin.fd()).advise(extent.offset, length, MADV_WILLNEED);
        }
      }
      for (const Wanted& one : wanted) deliver(state, one, feed);
    } catch (...) {
      failure = std::current_exception();
    }
    for (const Wanted& one : wanted) let_go(state, one);
    if (failure) std::rethrow_exception(failure);
  }

  void deliver(ProcessState& state, const Wanted& one, Feed& feed) REQUIRES(state.mutex) {
    const Extent& extent = one.extent;
    const Pin pin(state.files, extent.file);
    if (one.apart) {
      // Cached pages may lie in a large folio, which a fault maps as a whole: 2 MiB for one row. A
      // mapping of just these pages cannot grow like that.
      const Mapping part(pin.fd(), extent.offset, one.length, state.files.path(extent.file));
      part.advise(0, one.length, MADV_RANDOM);
      populate(part, 0, one.length, layout_.segments[extent.file], extent.offset);
      feed.arrived(extent, part.data());
      return;
    }
    Mapping& map = mapping(state, extent.file, pin.fd());
    state.tables += one.length / kTableSpan + 2;
    populate(map, extent.offset, one.length, layout_.segments[extent.file], extent.offset);
    feed.arrived(extent, map.data() + extent.offset);
  }

  void let_go(ProcessState& state, const Wanted& one) REQUIRES(state.mutex) {
    if (one.uncached.empty()) return;
    const Extent& extent = one.extent;
    // POSIX_FADV_DONTNEED skips pages that are still mapped, so they are unmapped first.
    if (const Mapping& map = state.mappings[extent.file]) {
      const std::uint64_t begin = extent.offset - std::min(extent.offset, kFaultAround);
      map.advise(begin, extent.offset + extent.length + kFaultAround - begin, MADV_DONTNEED);
    }
    const Pin pin(state.files, extent.file);
    one.uncached.drop(pin.fd());
  }

  const Layout& layout_;
  const EngineLimits limits_;
  const std::uint64_t most_tables_;
  Reservation share_;
  PerProcess<ProcessState> state_;
};

}  // namespace

std::unique_ptr<Engine> make_advise_engine(const Layout& layout, const Budget& budget) {
  return std::make_unique<AdviseEngine>(layout, budget);
}

}  // namespace evenkeel
