// The engine `remote`, for objects on servers: extents become range requests, many in flight.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "engine/arena.h"
#include "engine/engines.h"
#include "engine/remote_cached.h"
#include "remote/object.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kLeastRemoteBuffer = 256 << 10, kMostRemoteBuffer = 64 << 20;
constexpr std::uint64_t kMostRemoteRequest = 4 << 20;
// Reading a gap costs as much as a second request if it is as long as what a connection transfers
// during the latency of a request. kFirstGap is a guess until that is measured.
constexpr std::uint64_t kFirstGap = 64 << 10, kLeastGap = 8 << 10, kMostGap = 256 << 10;
constexpr unsigned kLeastConnections = 4;
constexpr std::uint64_t kLong = 512 << 10;  // rows longer than this are not cached in memory

unsigned connections_for(const Budget& budget, const RemoteSettings& settings) {
  const std::uint64_t fitting = budget.limit() / 32 / kConnectionMemory;
  const unsigned least = std::min(kLeastConnections, settings.connections);
  return static_cast<unsigned>(std::clamp<std::uint64_t>(fitting, least, settings.connections));
}

constexpr std::uint64_t kLeastCachedBuffer = CachedRun::kLeastSlots * CachedRun::kSlot;
constexpr std::uint64_t kMemoryOfQueue = 64 << 10;  // for the queue that reads the cache on disk

// How many blocks of the cache are remembered as verified, one byte each.
std::uint64_t blocks_to_know(const Layout& layout, const Budget& budget) {
  if (layout.disk_cache.empty()) return 0;
  return std::min(CacheOfProcess::blocks_of(layout), budget.limit() / 64);
}

std::vector<std::string> keys_of(const Layout& layout) {
  std::vector<std::string> keys;
  if (layout.disk_cache.empty()) return keys;
  for (const Segment& segment : layout.segments) {
    const std::string identity = segment.remote->cache_identity();
    // Without an identity, the blocks of this file are not cached.
    keys.push_back(identity.empty() ? "" : DiskCache::key_of(identity, segment.identity.size));
  }
  return keys;
}

class RemoteEngine final : public Engine {
 public:
  RemoteEngine(const Layout& layout, const Budget& budget)
      : layout_(layout),
        settings_(layout.segments.front().remote->store->settings()),
        connections_(connections_for(budget, settings_)),
        connection_share_(
            budget.reserve(connections_ * kConnectionMemory, "connections to servers")),
        known_blocks_(blocks_to_know(layout, budget)),
        known_share_(budget.reserve(layout.disk_cache.empty() ? 0 : known_blocks_ + kMemoryOfQueue,
                                    "the cache on disk")),
        memory_(
            budget,
            buffer_size(budget, layout.disk_cache.empty() ? kLeastRemoteBuffer : kLeastCachedBuffer,
                        kMostRemoteBuffer),
            "read buffers"),
        max_request_(layout.disk_cache.empty()
                         ? std::min(kMostRemoteRequest, round_down(memory_.size() / 4, 4096))
                         : DiskCache::kBlock),
        cache_keys_(keys_of(layout)),
        state_([this] { return std::make_unique<ProcessState>(*this); }) {
    connection_share_.keep_in_children();
    known_share_.keep_in_children();
    memory_.keep_in_children();
    if (const auto& cache = state_.get().cache) cache_alignment_ = cache->cache.alignment();
  }

  void run(Feed& feed) override {
    ProcessState& state = state_.get();
    // Another loader may be waiting for its server, and this one may be closed in the meantime.
    while (!state.mutex.try_lock()) {
      if (feed.cancelled()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    try {
      run_locked(state, feed);
    } catch (...) {
      state.mutex.unlock();
      throw;
    }
    state.mutex.unlock();
  }

  EngineLimits limits() const override {
    const double latency = totals_.latency_s.load(), bandwidth = totals_.bandwidth.load();
    const std::uint64_t gap =
        bandwidth == 0
            ? kFirstGap
            : std::clamp(static_cast<std::uint64_t>(latency * bandwidth), kLeastGap, kMostGap);
    if (layout_.disk_cache.empty()) return {1, max_request_, std::min(gap, max_request_ / 4)};
    // Whole blocks are fetched in any case; alignment and gaps are those of the disk.
    return {cache_alignment_, max_request_, kMergeGap};
  }
  EngineTotals totals() const override {
    const std::uint64_t started = totals_.requests.load(), finished = totals_.finished.load();
    EngineTotals totals;
    totals.requests = started;
    totals.in_flight = started - std::min(started, finished);
    totals.bytes_from_network = totals_.bytes.load();
    totals.retries = totals_.retries.load();
    totals.hedges = totals_.hedges.load();
    totals.wait_ns = wait_ns_.load();
    totals.bytes_from_disk_cache = bytes_from_cache_.load();
    return totals;
  }
  EngineReport report() const override {
    const RemoteObject& object = *layout_.segments.front().remote;
    const char* pinned = !object.etag.empty()            ? "ETag"
                         : !object.last_modified.empty() ? "Last-Modified"
                                                         : "size alone";
    return {EngineKind::kRemote, EngineKind::kRemote,
            "range requests, " + std::to_string(connections_) + " in flight, pinned by " + pinned +
                ", " + object.store->describe() +
                (layout_.disk_cache.empty() ? "" : ", cache on disk " + layout_.disk_cache),
            ""};
  }

 private:
  struct ProcessState {
    explicit ProcessState(RemoteEngine& engine)
        : transfers(engine.settings_, engine.connections_, engine.totals_) {
      if (engine.layout_.disk_cache.empty()) return;
      cache = std::make_unique<CacheOfProcess>(
          engine.layout_, engine.layout_.disk_cache,
          std::span(engine.memory_.data(), engine.memory_.size()), engine.known_blocks_);
    }
    Mutex mutex;
    Transfers transfers GUARDED_BY(mutex);
    std::unique_ptr<CacheOfProcess> cache;  // nullptr: none
  };

  void run_locked(ProcessState& state, Feed& feed) REQUIRES(state.mutex) {
    if (state.cache) {
      CachedRun run(layout_, state.transfers, *state.cache, cache_keys_,
                    {memory_.data(), memory_.size()}, connections_, feed, bytes_from_cache_,
                    wait_ns_);
      work(run, state, feed);
    } else {
      Run run(*this, state, feed);
      work(run, state, feed);
    }
  }

  // Cancels what is still in flight while `run`, which owns the transfers, is alive.
  template <class AnyRun>
  void work(AnyRun& run, ProcessState& state, Feed& feed) REQUIRES(state.mutex) {
    try {
      for (run.fill(); !run.idle() && !feed.cancelled(); run.fill()) {
        const bool other_work = feed.has_other_work();
        run.wait(other_work);
        if (other_work && !feed.cancelled()) feed.do_other_work();
      }
    } catch (...) {
      state.transfers.cancel_all();
      throw;
    }
    state.transfers.cancel_all();
  }

  // One call of run, with the mutex held.
  class Run {
   public:
    Run(RemoteEngine& engine, ProcessState& state, Feed& feed)
        : engine_(engine), state_(state), feed_(feed), arena_(engine.memory_.size()) {}

    bool idle() const { return reads_.empty(); }

    void fill() {
      state_.mutex.assert_held();
      while (reads_.size() < engine_.connections_) {
        if (!waiting_) {
          Extent extent;
          if (!feed_.next(extent)) return;
          waiting_ = extent;
        }
        if (!start(*waiting_)) return;
        waiting_.reset();
      }
    }

    void wait(bool busy) {
      state_.mutex.assert_held();
      {
        const WaitTime waiting(engine_.wait_ns_);
        state_.transfers.wait(busy ? 1 : 50, done_);
      }
      if (feed_.cancelled()) return;
      for (Transfer* transfer : done_) complete(transfer);
      done_.clear();
    }

   private:
    void complete(Transfer* transfer) {
      const auto found = reads_.find(transfer);
      const std::unique_ptr<Read> read = std::move(found->second);
      reads_.erase(found);
      feed_.arrived(read->extent, read->data);
      if (read->ticket) arena_.give_back(*read->ticket);
    }

    struct Read {
      Extent extent;
      std::byte* data;  // nullptr: at its target
      std::optional<std::uint64_t> ticket;
      RangeTransfer transfer;
    };

    bool start(const Extent& extent) REQUIRES(state_.mutex) {
      const Segment& segment = engine_.layout_.segments[extent.file];
      std::uint64_t offset = extent.offset;
      std::uint64_t length = std::min(extent.length, segment.identity.size - extent.offset);
      std::byte* into = extent.into;
      std::byte* data = into;
      std::optional<std::uint64_t> ticket;
      if (!into) {
        // Bytes that have a target go straight there. But if the feed keeps copies, short extents
        // go through the engine's memory, unless that is full.
        const bool at_once = extent.length >= kLong || !feed_.keeps_copies();
        auto target = at_once ? feed_.target(extent) : std::nullopt;
        const auto piece = target ? std::nullopt : arena_.take(extent.length);
        if (piece) {
          data = into = engine_.memory_.data() + piece->begin;
          ticket = piece->ticket;
        } else {
          if (!target) target = feed_.target(extent);
          if (!target) return false;
          offset = target->offset;
          length = target->length;
          into = target->out;
        }
      }
      auto read = std::make_unique<Read>(
          Read{extent, data, ticket, RangeTransfer(*segment.remote, offset, length, into)});
      state_.transfers.start(read->transfer);
      Transfer* const key = &read->transfer;
      reads_[key] = std::move(read);
      return true;
    }

    RemoteEngine& engine_;
    ProcessState& state_;
    Feed& feed_;
    RingArena arena_;
    std::unordered_map<Transfer*, std::unique_ptr<Read>> reads_;
    std::vector<Transfer*> done_;
    std::optional<Extent> waiting_;  // taken from the feed, but there was no room yet
  };

  const Layout& layout_;
  const RemoteSettings settings_;
  const unsigned connections_;
  Reservation connection_share_;
  const std::uint64_t known_blocks_;  // see CacheOfProcess
  Reservation known_share_;
  PageBuffer memory_;
  const std::uint64_t max_request_;
  std::uint64_t cache_alignment_ = DiskCache::kHeader;  // of reads of the cache on disk
  const std::vector<std::string> cache_keys_;           // the key of each file in that cache
  TransferTotals totals_;
  std::atomic<std::uint64_t> wait_ns_ = 0, bytes_from_cache_ = 0;
  PerProcess<ProcessState> state_;
};

}  // namespace

std::unique_ptr<Engine> make_remote_engine(const Layout& layout, const Budget& budget) {
  return std::make_unique<RemoteEngine>(layout, budget);
}

}  // namespace evenkeel
