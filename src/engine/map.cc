// The engine `map`: one mapping that is kept, like np.memmap.
#include <atomic>
#include <vector>

#include "base/mutex.h"
#include "base/per_process.h"
#include "engine/engines.h"
#include "engine/files.h"
#include "engine/mapping.h"

namespace evenkeel {
namespace {

class MapEngine final : public Engine {
 public:
  MapEngine(const Layout& layout, Reservation share)
      : layout_(layout),
        share_(std::move(share)),
        share_bytes_(share_.bytes()),
        state_([&layout] { return std::make_unique<ProcessState>(layout); }) {
    share_.keep_in_children();
  }

  void run(Feed& feed) override {
    Extent extent;
    while (feed.next(extent)) feed.arrived(extent, mapped(extent.file) + extent.offset);
  }

  // Mappings outlive their descriptors, so only the file of the current call needs to be open.
  const std::byte* mapped(std::uint32_t file) override {
    ProcessState& state = state_.get();
    const MutexLock lock(state.mutex);
    const Segment& segment = layout_.segments[file];
    const Pin pin(state.files, file);
    // Touching a mapping of a truncated file raises SIGBUS, so check first.
    state.files.verify(file);
    Mapping& mapping = state.mappings[file];
    if (!mapping) mapping = Mapping(pin.fd(), 0, segment.identity.size, segment.path);
    return mapping.data();
  }

  void count_mapped(std::uint64_t bytes) override {
    copied_.fetch_add(bytes, std::memory_order_relaxed);
  }
  EngineTotals totals() const override {
    EngineTotals totals;
    totals.bytes_from_mapping = copied_.load(std::memory_order_relaxed);
    return totals;
  }

  bool maps_files() const override { return true; }
  void release_memory() override {
    ProcessState& state = state_.get();
    const MutexLock lock(state.mutex);
    for (const Mapping& mapping : state.mappings) {
      mapping.advise(0, mapping.length(), MADV_DONTNEED);
    }
    share_.release();
  }
  bool reclaim_memory(const Budget& budget) override {
    auto share = budget.try_reserve(share_bytes_, "mapped data");
    if (!share) return false;
    share_ = std::move(*share);
    share_.keep_in_children();
    return true;
  }

  EngineLimits limits() const override { return {1, std::uint64_t{1} << 40, 0}; }
  EngineReport report() const override {
    return {EngineKind::kMap, EngineKind::kMap, "one mapping, kept: memory grows with use", ""};
  }

 private:
  struct ProcessState {
    explicit ProcessState(const Layout& layout)
        : files(layout, 0), mappings(layout.segments.size()) {}
    Mutex mutex;
    FileSet files GUARDED_BY(mutex);
    std::vector<Mapping> mappings GUARDED_BY(mutex);
  };
  const Layout& layout_;
  Reservation share_;  // for the mapped pages; empty if the user asked for `map`
  const std::uint64_t share_bytes_;
  std::atomic<std::uint64_t> copied_ = 0;
  PerProcess<ProcessState> state_;
};

}  // namespace

std::unique_ptr<Engine> make_map_engine(const Layout& layout, Reservation share) {
  return std::make_unique<MapEngine>(layout, std::move(share));
}

}  // namespace evenkeel
