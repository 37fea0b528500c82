// The engine `fill`: reads through the page cache and leaves everything there. Rows are copied out
// of mappings. Missing pages are read with many requests in flight.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "engine/engines.h"
#include "engine/files.h"
#include "engine/fill_file.h"
#include "engine/mapping.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kTableBytes = 2 << 20;  // what one page of page tables maps
constexpr std::uint64_t kFillRegion = 2 << 20;  // a multiple of kTableBytes
// After this many misses in a region, the whole region is read: the misses have cost a part of what
// that costs. Fewer are enough if the region before it is in memory, because that looks like a
// scan.
constexpr std::uint32_t kMissesToReadAll = 8, kMissesInScan = 2;
constexpr std::uint64_t kCheckMemoryEvery = 128_MiB;
constexpr std::int64_t kCheckMemoryAgainNs = 250'000'000;
constexpr std::size_t kMostRangesTogether = 256;
constexpr std::uint64_t kMostBytesTogether = 4_MiB, kMostBytesOfRange = 1_MiB;

class FillEngine final : public Engine {
 public:
  FillEngine(const Layout& layout, const Budget& budget, std::function<std::uint64_t()> available)
      : layout_(layout),
        data_bytes_(mapped_size(layout)),
        region_bytes_(region_size(layout, budget)),
        all_tables_(table_count(layout)),
        most_tables_(std::min(all_tables_,
                              std::max<std::uint64_t>(budget.limit() / 16 / sys::page_size(), 16))),
        share_(budget.reserve(region_count(layout, region_bytes_) * sizeof(RegionState) +
                                  layout.segments.size() * MappedFile::memory() +
                                  most_tables_ * sys::page_size(),
                              "page tables of mapped files")),
        available_(std::move(available)),
        available_at_open_(available_()),
        state_([&layout] { return std::make_unique<ProcessState>(layout); }) {
    share_.keep_in_children();
  }

  void run(Feed& feed) override {
    std::vector<Extent> extents;
    std::vector<FileRange> ranges, pending;
    Extent extent;
    for (;;) {
      extents.clear();
      ranges.clear();
      std::uint64_t bytes = 0;
      while (extents.size() < ranges_together() && bytes < kMostBytesTogether &&
             feed.next(extent)) {
        mapped(extent.file);
        extents.push_back(extent);
        ranges.push_back({extent.file, extent.offset, extent.length});
        bytes += extent.length;
      }
      if (extents.empty()) return;
      request(ranges, pending);
      await(pending);
      for (const Extent& one : extents) {
        feed.arrived(one, file(one.file).mapping().data() + one.offset);
      }
      for (const Extent& one : extents) require_unchanged(one.file);
    }
  }

  bool maps_files() const override { return true; }
  bool pages_may_be_absent() const override { return true; }

  const std::byte* mapped(std::uint32_t number) override {
    ProcessState& state = state_.get();
    // Without the mutex, so that threads do not wait for each other.
    if (state.files[number].ready() && surely_unchanged(layout_.segments[number])) {
      return state.files[number].mapping().data();
    }
    const MutexLock lock(state.mutex);
    const Segment& segment = layout_.segments[number];
    const Pin pin(state.open_files, number);
    // Touching a mapping of a truncated file raises SIGBUS, so check first.
    state.open_files.verify(number);
    MappedFile& file = state.files[number];
    if (!file.ready()) file.map(pin.fd(), segment, region_bytes_);
    return file.mapping().data();
  }

  void require_unchanged(std::uint32_t number) override {
    if (surely_unchanged(layout_.segments[number])) return;
    ProcessState& state = state_.get();
    const MutexLock lock(state.mutex);
    const Pin pin(state.open_files, number);
    state.open_files.verify(number);
  }

  bool known_in_memory(std::span<const FileRange> ranges) override {
    const RegionState::Tick now = RegionState::now();
    return std::ranges::all_of(ranges, [&](const FileRange& range) {
      const std::uint64_t last = (range.offset + range.length - 1) / region_bytes_;
      for (std::uint64_t region = range.offset / region_bytes_; region <= last; ++region) {
        if (!file(range.file).regions[region].full(now)) return false;
      }
      return true;
    });
  }

  void request(std::span<const FileRange> ranges, std::vector<FileRange>& pending) override {
    const RegionState::Tick now = RegionState::now();
    keep_tables_few();
    std::uint64_t wanted = 0, missed = 0;
    for (const FileRange& range : ranges) {
      wanted += range.length;
      const std::uint64_t end = range.offset + range.length;
      for (std::uint64_t at = range.offset; at < end;) {
        const std::uint64_t region = at / region_bytes_;
        const std::uint64_t part_end = std::min(end, (region + 1) * region_bytes_);
        if (!file(range.file).regions[region].full(now)) {
          const std::size_t before = pending.size();
          request_part({range.file, at, part_end - at}, region, now, pending);
          if (pending.size() > before) missed += part_end - at;
        }
        at = part_end;
      }
    }
    state_.get().bytes_from_page_cache.fetch_add(wanted - missed, std::memory_order_relaxed);
  }

  void await(std::vector<FileRange>& pending) override {
    if (pending.empty()) return;
    ProcessState& state = state_.get();
    const std::int64_t began = sys::monotonic_ns();
    std::uint64_t bytes = 0;
    const RegionState::Tick now = RegionState::now();
    for (const FileRange& range : pending) {
      MappedFile& mapped_file = file(range.file);
      populate(mapped_file.mapping(), range.offset, range.length, layout_.segments[range.file],
               range.offset);
      bytes += range.length;
      const std::uint64_t region = range.offset / region_bytes_;
      if (range.offset == region * region_bytes_ &&
          range.length == region_length(mapped_file, region)) {
        mapped_file.regions[region].set_full(now);
      }
    }
    const std::int64_t took = sys::monotonic_ns() - began;
    state.requests.fetch_add(pending.size(), std::memory_order_relaxed);
    state.bytes_from_disk.fetch_add(bytes, std::memory_order_relaxed);
    state.wait_ns.fetch_add(static_cast<std::uint64_t>(std::max<std::int64_t>(took, 0)),
                            std::memory_order_relaxed);
    pending.clear();
  }

  EngineTotals totals() const override {
    EngineTotals totals;
    const ProcessState* const state = state_.if_made();
    if (!state) return totals;
    totals.requests = state->requests.load(std::memory_order_relaxed);
    totals.bytes_from_disk = state->bytes_from_disk.load(std::memory_order_relaxed);
    totals.bytes_from_page_cache = state->bytes_from_page_cache.load(std::memory_order_relaxed);
    totals.wait_ns = state->wait_ns.load(std::memory_order_relaxed);
    return totals;
  }

  // Two threads may each request a group of ranges, and a range may touch two regions. Each group
  // may then take at most a quarter of the page tables.
  std::size_t ranges_together() const override {
    return std::clamp<std::size_t>(most_tables_ / 8, 2, kMostRangesTogether);
  }

  EngineLimits limits() const override { return {1, kMostBytesOfRange, 0}; }
  unsigned concurrency() const override { return 2; }
  EngineReport report() const override {
    return {EngineKind::kFill, EngineKind::kFill,
            "copies out of mappings; missing pages are read without the kernel's readahead, in "
            "whole regions of " +
                format_size(region_bytes_) +
                " if much of a region is requested and all data fits free memory; everything stays "
                "in the page cache",
            ""};
  }

 private:
  struct ProcessState {
    explicit ProcessState(const Layout& layout)
        : open_files(layout, 0), files(layout.segments.size()) {}
    Mutex mutex;
    FileSet open_files GUARDED_BY(mutex);
    // The first call of `mapped` for a file sets up its entry under the mutex. All other calls for
    // the file come after one of `mapped`, and read the entry without the mutex.
    std::vector<MappedFile> files;
    std::atomic<std::uint64_t> requests = 0, bytes_from_disk = 0, bytes_from_page_cache = 0,
                               wait_ns = 0;
    std::atomic<std::uint64_t> tables = 0;  // pages of page tables that the mappings may have

    Mutex memory_mutex;
    // How many bytes of whole regions may be read before available memory is checked again.
    std::atomic<std::int64_t> room = 0;
    std::int64_t next_check_ns GUARDED_BY(memory_mutex) = 0;
  };

  static std::uint64_t mapped_size(const Layout& layout) {
    std::uint64_t bytes = 0;
    for (const Segment& segment : layout.segments) bytes += segment.identity.size;
    return bytes;
  }
  static std::uint64_t region_count(const Layout& layout, std::uint64_t region_bytes) {
    std::uint64_t count = 0;
    for (const Segment& segment : layout.segments) {
      count += segment.identity.size / region_bytes + 1;
    }
    return count;
  }
  // Larger regions if necessary, so that their state stays small compared to the budget.
  static std::uint64_t region_size(const Layout& layout, const Budget& budget) {
    const std::uint64_t most = std::max<std::uint64_t>(budget.limit() / 64, 16_KiB);
    std::uint64_t bytes = kFillRegion;
    while (bytes < (std::uint64_t{1} << 30) &&
           region_count(layout, bytes) * sizeof(RegionState) > most) {
      bytes *= 2;
    }
    return bytes;
  }
  // The number of page-table pages for all data. If the budget has room for fewer, the mappings are
  // replaced from time to time, which frees their page tables.
  static std::uint64_t table_count(const Layout& layout) {
    std::uint64_t all = 0;
    for (const Segment& segment : layout.segments) {
      all += round_up(segment.identity.size, kTableBytes) / kTableBytes + 1;
    }
    return all;
  }

  MappedFile& file(std::uint32_t number) { return state_.get().files[number]; }
  std::uint64_t region_length(const MappedFile& file, std::uint64_t region) const {
    return std::min(region_bytes_, file.mapping().length() - region * region_bytes_);
  }

  // Requests a part of one region that is not known to be in memory.
  void request_part(const FileRange& part, std::uint64_t number, RegionState::Tick now,
                    std::vector<FileRange>& pending) {
    MappedFile& mapped_file = file(part.file);
    RegionState& region = mapped_file.regions[number];
    if (region.touch()) {
      state_.get().tables.fetch_add(region_bytes_ / kTableBytes, std::memory_order_relaxed);
    }
    const FileRange whole{part.file, number * region_bytes_, region_length(mapped_file, number)};
    if (!region.checked(now)) {
      if (mapped_file.in_memory(whole.offset, whole.length)) return region.set_full(now);
      region.set_not_full(now);
    }
    if (mapped_file.in_memory(part.offset, part.length)) return;
    const std::uint32_t misses = region.count_miss();
    const bool in_scan = number > 0 && mapped_file.regions[number - 1].was_full();
    // Larger regions (data far larger than the budget) have more page tables than a request may
    // add.
    const bool all = region_bytes_ == kFillRegion &&
                     misses >= (in_scan ? kMissesInScan : kMissesToReadAll) &&
                     may_read_ahead(whole.length);
    FileRange wanted = whole;
    if (!all) {
      wanted.offset = round_down(part.offset, sys::page_size());
      wanted.length = part.offset + part.length - wanted.offset;
    }
    mapped_file.mapping().advise(wanted.offset, wanted.length, MADV_WILLNEED);
    pending.push_back(wanted);
  }

  // Whether there is memory for bytes that were not requested.
  bool may_read_ahead(std::uint64_t bytes) {
    ProcessState& state = state_.get();
    const auto signed_bytes = static_cast<std::int64_t>(bytes);
    if (state.room.fetch_sub(signed_bytes, std::memory_order_relaxed) >= signed_bytes) return true;
    const MutexLock lock(state.memory_mutex);
    if (state.room.load(std::memory_order_relaxed) >= signed_bytes) return true;  // just checked
    const std::int64_t now = sys::monotonic_ns();
    if (now < state.next_check_ns && state.next_check_ns - now <= kCheckMemoryAgainNs) return false;
    if (!data_fits_memory(state)) {
      state.next_check_ns = now + kCheckMemoryAgainNs;
      return false;
    }
    state.room.store(static_cast<std::int64_t>(kCheckMemoryEvery), std::memory_order_relaxed);
    return true;
  }

  // Whether all of the data fits the available memory, with a margin, and whether the part that is
  // still missing fits now. Available memory includes the page cache, even that of these files.
  bool data_fits_memory(ProcessState& state) const {
    const std::uint64_t available = available_();
    std::uint64_t present = 0;
    const MutexLock lock(state.mutex);  // another thread may be mapping a file
    for (const MappedFile& one : state.files) {
      for (std::size_t i = 0; i < one.region_count; ++i) {
        if (one.regions[i].was_full()) present += region_length(one, i);
      }
    }
    const std::uint64_t most = std::max(available, available_at_open_);
    return data_bytes_ <= most - most / 8 &&
           data_bytes_ - std::min(present, data_bytes_) <= available - available / 8;
  }

  // If the budget does not hold the page tables of all data, half of those it holds are for regions
  // that are about to be touched.
  void keep_tables_few() {
    ProcessState& state = state_.get();
    if (most_tables_ == all_tables_ ||
        state.tables.load(std::memory_order_relaxed) < most_tables_ / 2) {
      return;
    }
    const MutexLock lock(state.mutex);
    if (state.tables >= most_tables_ / 2) renew_mappings(state);
  }

  // Replaces the mappings in place: threads that copy out of them meanwhile find the same bytes at
  // the same address.
  void renew_mappings(ProcessState& state) REQUIRES(state.mutex) {
    for (std::uint32_t number = 0; number < state.files.size(); ++number) {
      MappedFile& file = state.files[number];
      if (!file.ready()) continue;
      const Pin pin(state.open_files, number);
      file.renew(pin.fd(), layout_.segments[number]);
    }
    state.tables = 0;
  }

  const Layout& layout_;
  const std::uint64_t data_bytes_, region_bytes_, all_tables_, most_tables_;
  Reservation share_;
  const std::function<std::uint64_t()> available_;
  const std::uint64_t available_at_open_;
  mutable PerProcess<ProcessState> state_;
};

}  // namespace

std::unique_ptr<Engine> make_fill_engine(const Layout& layout, const Budget& budget,
                                         std::function<std::uint64_t()> available) {
  return std::make_unique<FillEngine>(layout, budget, std::move(available));
}

}  // namespace evenkeel
