// The engine `fill`: reads through the page cache and leaves everything there. Rows are copied out
// of mappings. Missing pages are read with many requests in flight.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "base/retry_policy.h"
#include "engine/engines.h"
#include "engine/files.h"
#include "engine/mapping.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kTableBytes = 2 << 20;  // what one page of page tables maps
constexpr std::uint64_t kFillRegion = 2 << 20;  // a multiple of kTableBytes
constexpr std::int64_t kTickNs = 2'000'000'000;
// After this many misses in a region, the whole region is read: the misses have cost a part of what
// that costs. Fewer are enough if the region before it is in memory, because that looks like a
// scan.
constexpr std::uint32_t kMissesToReadAll = 8, kMissesInScan = 2;
constexpr std::uint64_t kCheckMemoryEvery = 128_MiB;
constexpr std::int64_t kCheckMemoryAgainNs = 250'000'000;
constexpr std::size_t kMostRangesTogether = 256;
constexpr std::uint64_t kMostBytesTogether = 4_MiB, kMostBytesOfRange = 1_MiB;
constexpr std::uint64_t kMostPagesAsked = 512;  // in one call of mincore

// The state of a region, in one word that threads read and write without a lock. A lost update
// costs only another system call.
struct Region {
  static constexpr std::uint32_t kTick = 0xffff;       // when it was last checked
  static constexpr std::uint32_t kLooked = 1U << 16;   // the tick is valid
  static constexpr std::uint32_t kFull = 1U << 17;     // all of it was in memory then
  static constexpr std::uint32_t kTouched = 1U << 18;  // its page tables are counted
  static constexpr std::uint32_t kMissShift = 24;

  static bool fresh(std::uint32_t word, std::uint32_t tick) {
    return (word & (kTick | kLooked)) == (tick | kLooked);
  }
  static bool full(std::uint32_t word, std::uint32_t tick) {
    return (word & (kTick | kLooked | kFull)) == (tick | kLooked | kFull);
  }
  static std::uint32_t misses(std::uint32_t word) { return word >> kMissShift; }
};

// A file: its mapping, and the state of its regions. Other threads use the mapping without a lock,
// so a mapping that was lost stays in the list after another has replaced it.
struct MappedFile {
  MappedFile() = default;
  // Lost mappings must not be unmapped: something else may be at their addresses by now.
  ~MappedFile() {
    for (Mapping& one : made) {
      if (!ready || &one != &made.back()) one.forget();
    }
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  static constexpr std::uint64_t kMemoryOfMapping = 64;
  static std::uint64_t memory() { return sizeof(MappedFile) + kMemoryOfMapping; }

  // Valid only after the first mapping was made.
  const Mapping& mapping() const { return *current.load(std::memory_order_acquire); }

  std::list<Mapping> made;  // guarded by the engine's mutex; only the last may be in use
  std::atomic<const Mapping*> current = nullptr;  // the last of `made`
  std::unique_ptr<std::atomic<std::uint32_t>[]> regions;
  std::size_t region_count = 0;
  bool may_ask = false;             // mincore returns the truth for this file
  std::atomic<bool> ready = false;  // all of the above is set, and the last mapping is not lost
};

class FillEngine final : public Engine {
 public:
  FillEngine(const Layout& layout, const Budget& budget, std::function<std::uint64_t()> available)
      : layout_(layout),
        data_bytes_(mapped_size(layout)),
        region_bytes_(region_size(layout, budget)),
        all_tables_(table_count(layout)),
        most_tables_(std::min(all_tables_,
                              std::max<std::uint64_t>(budget.limit() / 16 / sys::page_size(), 16))),
        share_(budget.reserve(region_count(layout, region_bytes_) * sizeof(std::uint32_t) +
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
    if (state.files[number].ready.load(std::memory_order_acquire) &&
        surely_unchanged(layout_.segments[number])) {
      return state.files[number].mapping().data();
    }
    const MutexLock lock(state.mutex);
    const Segment& segment = layout_.segments[number];
    const Pin pin(state.open_files, number);
    // Touching a mapping of a truncated file raises SIGBUS, so check first.
    state.open_files.verify(number);
    MappedFile& file = state.files[number];
    if (!file.ready.load(std::memory_order_relaxed)) {
      Mapping mapping(pin.fd(), 0, segment.identity.size, segment.path);
      if (!file.regions) {
        const std::size_t count = divide_up(mapping.length(), region_bytes_);
        file.regions = std::make_unique<std::atomic<std::uint32_t>[]>(count);
        file.region_count = count;
        file.may_ask = may_ask(pin.fd());
      }
      advise(mapping);
      file.current.store(&file.made.emplace_back(std::move(mapping)), std::memory_order_release);
      file.ready.store(true, std::memory_order_release);
    }
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
    const std::uint32_t now = tick();
    return std::ranges::all_of(ranges, [&](const FileRange& range) {
      const std::uint64_t last = (range.offset + range.length - 1) / region_bytes_;
      for (std::uint64_t region = range.offset / region_bytes_; region <= last; ++region) {
        const auto& word = file(range.file).regions[region];
        if (!Region::full(word.load(std::memory_order_relaxed), now)) return false;
      }
      return true;
    });
  }

  void request(std::span<const FileRange> ranges, std::vector<FileRange>& pending) override {
    const std::uint32_t now = tick();
    keep_tables_few();
    std::uint64_t wanted = 0, missed = 0;
    for (const FileRange& range : ranges) {
      wanted += range.length;
      const std::uint64_t end = range.offset + range.length;
      for (std::uint64_t at = range.offset; at < end;) {
        const std::uint64_t region = at / region_bytes_;
        const std::uint64_t part_end = std::min(end, (region + 1) * region_bytes_);
        const std::uint32_t word = file(range.file).regions[region].load(std::memory_order_relaxed);
        if (!Region::full(word, now)) {
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
    const std::uint32_t now = tick();
    for (const FileRange& range : pending) {
      MappedFile& mapped_file = file(range.file);
      populate(mapped_file.mapping(), range.offset, range.length, layout_.segments[range.file],
               range.offset);
      bytes += range.length;
      const std::uint64_t region = range.offset / region_bytes_;
      if (range.offset == region * region_bytes_ &&
          range.length == region_length(mapped_file, region)) {
        set_full(mapped_file.regions[region], now);
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
           region_count(layout, bytes) * sizeof(std::uint32_t) > most) {
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

  static std::uint32_t tick() {
    return static_cast<std::uint32_t>(sys::monotonic_ns() / kTickNs) & Region::kTick;
  }
  MappedFile& file(std::uint32_t number) { return state_.get().files[number]; }
  std::uint64_t region_length(const MappedFile& file, std::uint64_t region) const {
    return std::min(region_bytes_, file.mapping().length() - region * region_bytes_);
  }

  static void advise(const Mapping& mapping) {
    mapping.advise(0, mapping.length(), MADV_RANDOM);
    mapping.advise(0, mapping.length(), MADV_DONTDUMP);
  }

  // For files that the user neither owns nor may write to, mincore reports every page as present.
  // cachestat fails by the same rule. On kernels without cachestat, check the owner.
  static bool may_ask(int fd) {
    sys::CacheStat stat{};
    if (sys::cachestat(fd, 0, 1, &stat) == 0) return true;
    if (errno == EPERM) return false;
    struct stat status;
    return sys::fstat(fd, &status) == 0 && (::geteuid() == 0 || status.st_uid == ::geteuid());
  }

  static bool in_memory(const MappedFile& file, std::uint64_t offset, std::uint64_t length) {
    if (!file.may_ask) return false;
    const std::uint64_t page = sys::page_size();
    std::array<unsigned char, kMostPagesAsked> pages;
    const std::uint64_t end = std::min(round_up(offset + length, page), file.mapping().length());
    for (std::uint64_t at = round_down(offset, page); at < end;) {
      const std::uint64_t bytes = std::min(end - at, pages.size() * page);
      if (sys::mincore(file.mapping().data() + at, bytes, pages.data()) != 0) return false;
      const auto count = static_cast<std::ptrdiff_t>(divide_up(bytes, page));
      const auto absent = [](unsigned char flags) { return (flags & 1) == 0; };
      if (std::any_of(pages.begin(), pages.begin() + count, absent)) return false;
      at += bytes;
    }
    return true;
  }

  void set_full(std::atomic<std::uint32_t>& region, std::uint32_t now) {
    const std::uint32_t touched = region.load(std::memory_order_relaxed) & Region::kTouched;
    region.store(touched | Region::kLooked | Region::kFull | now, std::memory_order_relaxed);
  }

  // Requests a part of one region that is not known to be in memory.
  void request_part(const FileRange& part, std::uint64_t number, std::uint32_t now,
                    std::vector<FileRange>& pending) {
    MappedFile& mapped_file = file(part.file);
    std::atomic<std::uint32_t>& region = mapped_file.regions[number];
    if ((region.fetch_or(Region::kTouched, std::memory_order_relaxed) & Region::kTouched) == 0) {
      state_.get().tables.fetch_add(region_bytes_ / kTableBytes, std::memory_order_relaxed);
    }
    const FileRange whole{part.file, number * region_bytes_, region_length(mapped_file, number)};
    std::uint32_t word = region.load(std::memory_order_relaxed);
    if (!Region::fresh(word, now)) {
      if (in_memory(mapped_file, whole.offset, whole.length)) return set_full(region, now);
      word = (word & ~(Region::kTick | Region::kFull)) | Region::kLooked | now;
      region.store(word, std::memory_order_relaxed);
    }
    if (in_memory(mapped_file, part.offset, part.length)) return;
    const std::uint32_t misses = std::min<std::uint32_t>(Region::misses(word) + 1, 255);
    region.store((word & 0xffffff) | misses << Region::kMissShift, std::memory_order_relaxed);
    const bool in_scan =
        number > 0 &&
        (mapped_file.regions[number - 1].load(std::memory_order_relaxed) & Region::kFull) != 0;
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
        const bool full = (one.regions[i].load(std::memory_order_relaxed) & Region::kFull) != 0;
        if (full) present += region_length(one, i);
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

  // Returns false if the mapping stays as it was. A kernel without memory may unmap the old mapping
  // before it fails. Then this retries for a while and throws if that does not help; the next read
  // maps the file at another address.
  static bool renew(MappedFile& file, int fd, const Segment& segment) {
    RetryPolicy retry;
    while (!file.mapping().renew(fd)) {
      const int code = errno;
      if (!file.mapping().lost()) return false;
      if (retry.try_again(EAGAIN)) continue;
      file.ready = false;
      throw Error::system("map", code, "the mapping of the file was lost")
          .in(segment.path)
          .hint("the system is out of memory; read again, or use page_cache \"spare\"");
    }
    return true;
  }

  // Replaces the mappings in place: threads that copy out of them meanwhile find the same bytes at
  // the same address.
  void renew_mappings(ProcessState& state) REQUIRES(state.mutex) {
    for (std::uint32_t number = 0; number < state.files.size(); ++number) {
      MappedFile& file = state.files[number];
      if (!file.ready.load(std::memory_order_relaxed)) continue;
      const Pin pin(state.open_files, number);
      if (!renew(file, pin.fd(), layout_.segments[number])) continue;
      advise(file.mapping());
      for (std::size_t i = 0; i < file.region_count; ++i) {
        file.regions[i].fetch_and(~(Region::kTouched | Region::kLooked), std::memory_order_relaxed);
      }
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
