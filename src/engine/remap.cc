// The engine `remap`: a new mapping for each request. It is unmapped afterwards, and its pages are
// dropped from the cache.
#include <algorithm>

#include "base/checked.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "engine/engines.h"
#include "engine/files.h"
#include "engine/mapping.h"
#include "engine/page_cache.h"

namespace evenkeel {
namespace {

class RemapEngine final : public Engine {
 public:
  RemapEngine(const Layout& layout, const Budget& budget)
      : layout_(layout),
        limits_{sys::page_size(), buffer_size(budget, 64_KiB, 4_MiB), kMergeGap},
        share_(budget.reserve(limits_.max_request, "mapped pages")),
        state_([&layout] { return std::make_unique<ProcessState>(layout); }) {
    share_.keep_in_children();
  }

  void run(Feed& feed) override {
    ProcessState& state = state_.get();
    const MutexLock lock(state.mutex);
    state.files.forget_used();
    Extent extent;
    while (feed.next(extent)) bring(state.files, extent, feed);
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
    return {EngineKind::kRemap, EngineKind::kRemap,
            "a mapping for each request, dropped from the cache afterwards", ""};
  }

 private:
  struct ProcessState {
    explicit ProcessState(const Layout& layout) : files(layout, 0) {}
    Mutex mutex;
    FileSet files GUARDED_BY(mutex);
  };

  void bring(FileSet& files, const Extent& extent, Feed& feed) {
    const Pin pin(files, extent.file);
    const std::uint64_t length = std::min(extent.length, files.size(extent.file) - extent.offset);
    const Uncached uncached(pin.fd(), extent.offset, length);
    {
      const Mapping mapping(pin.fd(), extent.offset, length, files.path(extent.file));
      // WILLNEED reads just this range; RANDOM keeps faults from reading the pages around them.
      mapping.advise(0, length, MADV_RANDOM);
      if (!uncached.empty()) mapping.advise(0, length, MADV_WILLNEED);
      populate(mapping, 0, length, layout_.segments[extent.file], extent.offset);
      feed.arrived(extent, mapping.data());
    }
    uncached.drop(pin.fd());
  }

  const Layout& layout_;
  const EngineLimits limits_;
  Reservation share_;
  PerProcess<ProcessState> state_;
};

}  // namespace

std::unique_ptr<Engine> make_remap_engine(const Layout& layout, const Budget& budget) {
  return std::make_unique<RemapEngine>(layout, budget);
}

}  // namespace evenkeel
