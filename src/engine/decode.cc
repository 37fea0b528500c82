// The engine `decode`, for compressed chunks. Several threads decode blocks of rows into memory
// that is reserved from the budget, where they stay until other blocks need it, or straight into
// the caller's memory.
#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "base/thread.h"
#include "engine/chunk_store.h"
#include "engine/engines.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kMostBlockSlots = 1024;
constexpr std::uint64_t kMostDecodeThreads = 32;
constexpr std::uint64_t kMostIndexBytes = 1 << 20;  // for cached shard indexes
constexpr std::uint64_t kMostPendingExtents = 512;
constexpr std::uint64_t kTables = 192 << 10;  // for the tables of requests and slots
constexpr std::uint64_t kNoBlock = UINT64_MAX;
// A block that is wanted whole is decoded into the caller's memory, and not kept, if there are this
// many times as many blocks as slots: it would rarely be found in its slot again.
constexpr std::uint64_t kManyBlocks = 4;

// How the budget is divided. The minimum is two blocks and one thread.
struct DecodeSizes {
  std::uint64_t slots = 2, threads = 1, indexes = 0;
  std::uint64_t slot_bytes, reader_bytes, index_bytes;

  DecodeSizes(const ChunkGrid& grid, const Budget& budget)
      : slot_bytes(BlockReader::block_size(grid)),
        reader_bytes(BlockReader::memory(grid)),
        index_bytes(BlockReader::index_bytes(grid)) {
    const std::uint64_t room = std::min(budget.limit() / 3, budget.left() / 2);
    const std::uint64_t cores = std::max(1U, std::thread::hardware_concurrency());
    // Threads wait for the disk, small chunks for most of the time: with 6 threads, 2 processors
    // decoded chunks of 64 KiB at five sixths of the speed that 12 reach.
    const std::uint64_t wanted = std::min({6 * cores, kMostDecodeThreads, grid.blocks});
    threads = std::clamp<std::uint64_t>(room / (2 * (slot_bytes + reader_bytes)), 1, wanted);
    if (index_bytes > 0) {
      indexes = std::max(threads + 1, std::min<std::uint64_t>(64, kMostIndexBytes / index_bytes));
    }
    const std::uint64_t others = working_bytes();
    const std::uint64_t fitting = room > others ? (room - others) / slot_bytes : 0;
    slots = std::clamp<std::uint64_t>(fitting, 2, std::min(kMostBlockSlots, grid.blocks + 1));
  }
  std::uint64_t working_bytes() const {
    // A thread may still use an index that is no longer in the cache.
    return threads * reader_bytes + (indexes + threads) * index_bytes + kTables;
  }
};

class DecodeEngine final : public Engine {
 public:
  DecodeEngine(const Layout& layout, const Budget& budget)
      : grid_(*layout.chunks),
        end_(layout.bytes()),
        budget_(budget),
        sizes_(grid_, budget),
        working_(budget.reserve(sizes_.working_bytes(), "decoders and compressed chunks")),
        memory_(budget, sizes_.slots * sizes_.slot_bytes, "decoded chunks"),
        in_place_(grid_.blocks >= kManyBlocks * sizes_.slots),
        state_([this] { return std::make_unique<State>(*this); }) {
    working_.keep_in_children();
    memory_.keep_in_children();
    make_decoder(grid_.compression, grid_.libraries, budget_);  // throws if it is not installed
  }

  void run(Feed& feed) override {
    State& state = state_.get();
    while (!state.running.try_lock()) {
      if (feed.cancelled()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    try {
      Run(*this, state, feed).work();
    } catch (...) {
      state.running.unlock();
      throw;
    }
    state.running.unlock();
  }

  EngineLimits limits() const override {
    // A small gap costs nothing: the blocks around it are decoded in any case.
    return {1, grid_.block_bytes, std::min<std::uint64_t>(64 << 10, grid_.block_bytes / 2),
            grid_.block_bytes};
  }
  EngineTotals totals() const override {
    EngineTotals totals;
    totals.requests = counters_.requests;
    totals.bytes_from_disk = counters_.bytes_from_disk;
    totals.bytes_from_page_cache = counters_.bytes_from_page_cache;
    return totals;
  }
  EngineReport report() const override {
    return {EngineKind::kDecode, EngineKind::kDecode,
            std::to_string(sizes_.threads) + (sizes_.threads == 1 ? " thread, " : " threads, ") +
                std::to_string(sizes_.slots) + " decoded blocks of " +
                format_size(sizes_.slot_bytes) + " in memory",
            ""};
  }

 private:
  // A block and where it is decoded to.
  struct Work {
    std::uint64_t block = kNoBlock;
    std::byte* out = nullptr;
    bool pending = false;  // queued, or being decoded
    std::exception_ptr failure = {};
  };
  // Memory for one block, which stays there.
  struct Slot {
    Work work;
    std::uint64_t last_use = 0;
    std::uint32_t pins = 0;  // requests that wait for it or use it
  };

  // The threads and the table of blocks of one process. Thread-safe.
  class State {
   public:
    explicit State(DecodeEngine& engine)
        : engine_(engine), indexes_(engine.sizes_.indexes), slots_(engine.sizes_.slots) {
      threads_.reserve(engine.sizes_.threads);
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        slots_[i].work.out = engine.memory_.data() + i * engine.sizes_.slot_bytes;
      }
    }
    ~State() {
      {
        const MutexLock lock(mutex_);
        stopping_ = true;
      }
      work_.notify_all();
      for (std::thread& thread : threads_) thread.join();
    }
    State(const State&) = delete;
    State& operator=(const State&) = delete;

    // Returns the slot of a block. The block stays in it until `unpin`. If the block is not in
    // memory, decoding starts. Returns nullptr if all slots are in use.
    Slot* pin(std::uint64_t block) EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      if (Slot* const known = find(block)) return known;
      Slot* oldest = nullptr;
      for (Slot& slot : slots_) {
        if (slot.pins > 0 || slot.work.pending) continue;
        if (!oldest || slot.last_use < oldest->last_use) oldest = &slot;
      }
      if (!oldest) return nullptr;
      if (oldest->work.block != kNoBlock) by_block_.erase(oldest->work.block);
      oldest->work.block = block;
      oldest->last_use = ++clock_;
      oldest->pins = 1;
      by_block_[block] = oldest;
      start(oldest->work);
      return oldest;
    }
    // The same, but returns nullptr if the block is not in memory.
    Slot* pin_if_there(std::uint64_t block) EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      return find(block);
    }
    void unpin(Slot& slot) EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      --slot.pins;
    }
    // Starts to decode to work.out. It must stay where it is until it is ready, or `stop_work`.
    void decode(Work& work) EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      start(work);
    }

    // Whether the block is decoded, after waiting up to `timeout`. Throws the error of decoding.
    bool ready(const Work& work, std::chrono::milliseconds timeout) EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      if (work.pending && threads_.empty()) {
        decode_next(own_reader());
      } else if (work.pending) {
        done_.wait_until(mutex_, std::chrono::steady_clock::now() + timeout);
      }
      if (work.pending) return false;
      if (work.failure) std::rethrow_exception(work.failure);
      return true;
    }

    // Drops what is queued and waits for what is being decoded.
    void stop_work() EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      for (Work* const work : waiting_) forget(*work);
      waiting_.clear();
      while (decoding_ > 0) done_.wait(mutex_);
    }

    Mutex running;  // held by the thread in `run`

   private:
    Slot* find(std::uint64_t block) REQUIRES(mutex_) {
      const auto known = by_block_.find(block);
      if (known == by_block_.end()) return nullptr;
      ++known->second->pins;
      known->second->last_use = ++clock_;
      return known->second;
    }

    void start(Work& work) REQUIRES(mutex_) {
      work.failure = {};
      work.pending = true;
      waiting_.push_back(&work);
      start_thread_if_needed();
      work_.notify_one();
    }

    // The next request for this block tries again.
    void forget(Work& work) REQUIRES(mutex_) {
      const auto known = by_block_.find(work.block);
      if (known != by_block_.end() && &known->second->work == &work) by_block_.erase(known);
      work.block = kNoBlock;
      work.pending = false;
    }

    void start_thread_if_needed() REQUIRES(mutex_) {
      if (threads_.size() >= engine_.sizes_.threads || waiting_.size() <= idle_) return;
      try {
        auto reader = make_reader();
        threads_.push_back(start_thread(
            [this, reader = std::shared_ptr<BlockReader>(std::move(reader))] { serve(*reader); }));
      } catch (...) {
        // No memory, or no more threads. The existing threads do the work; if there are none,
        // `ready` does it, or throws.
      }
    }

    std::unique_ptr<BlockReader> make_reader() {
      return std::make_unique<BlockReader>(engine_.grid_, engine_.budget_, indexes_,
                                           engine_.counters_);
    }
    // For `ready`, if no thread could be started.
    BlockReader& own_reader() REQUIRES(mutex_) {
      if (!own_reader_) own_reader_ = make_reader();
      return *own_reader_;
    }

    void serve(BlockReader& reader) EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      while (true) {
        ++idle_;
        while (!stopping_ && waiting_.empty()) work_.wait(mutex_);
        --idle_;
        if (stopping_) return;
        decode_next(reader);
      }
    }

    void decode_next(BlockReader& reader) REQUIRES(mutex_) {
      if (waiting_.empty()) return;
      Work& work = *waiting_.front();
      waiting_.pop_front();
      ++decoding_;
      mutex_.unlock();
      std::exception_ptr failure;
      try {
        reader.read(work.block, {work.out, engine_.sizes_.slot_bytes});
      } catch (...) {
        failure = std::current_exception();
      }
      mutex_.lock();
      --decoding_;
      if (failure) forget(work);
      work.failure = failure;
      work.pending = false;
      done_.notify_all();
    }

    DecodeEngine& engine_;
    ShardIndexes indexes_;
    Mutex mutex_;
    CondVar work_, done_;
    std::vector<Slot> slots_ GUARDED_BY(mutex_);
    std::unordered_map<std::uint64_t, Slot*> by_block_ GUARDED_BY(mutex_);
    std::deque<Work*> waiting_ GUARDED_BY(mutex_);  // to be decoded
    std::uint64_t clock_ GUARDED_BY(mutex_) = 0;
    std::size_t idle_ GUARDED_BY(mutex_) = 0, decoding_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::unique_ptr<BlockReader> own_reader_ GUARDED_BY(mutex_);
    std::vector<std::thread> threads_;  // grows only in `start`, with the mutex held
  };

  // One call of run.
  class Run {
   public:
    Run(DecodeEngine& engine, State& state, Feed& feed)
        : engine_(engine), state_(state), feed_(feed) {}
    // Nothing writes into the caller's memory afterwards.
    ~Run() {
      state_.stop_work();
      for (const Request& request : requests_) let_go(request);
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    void work() {
      while (true) {
        fill();
        if (requests_.empty()) return;
        if (feed_.cancelled()) return;
        Request& first = requests_.front();
        const std::chrono::milliseconds timeout(feed_.has_other_work() ? 1 : 50);
        const Work& work = first.slot ? first.slot->work : first.in_place;
        if (!state_.ready(work, timeout)) {
          if (feed_.has_other_work()) feed_.do_other_work();
          continue;
        }
        const std::uint64_t within = first.extent.offset % engine_.grid_.block_bytes;
        feed_.arrived(first.extent, work.out + within);
        let_go(first);
        requests_.pop_front();
      }
    }

   private:
    // Rows of one block.
    struct Request {
      Extent extent;
      Slot* slot = nullptr;
      Work in_place;  // if there is no slot
    };

    // Takes requests while there are slots for their blocks.
    void fill() {
      while (requests_.size() < kMostPendingExtents) {
        if (!waiting_) {
          Extent next;
          if (!feed_.next(next)) return;
          if (next.offset >= engine_.end_) {  // the feed aligned it for its cache: no rows
            feed_.arrived(next, nullptr);
            continue;
          }
          waiting_ = next;
        }
        if (!start(*waiting_)) return;
        waiting_.reset();
      }
    }

    bool start(const Extent& extent) {
      const std::uint64_t block = extent.offset / engine_.grid_.block_bytes;
      std::byte* const out = place_of_block(extent);
      requests_.push_back({extent, nullptr, {block, out}});  // must not fail after `pin`
      Request& request = requests_.back();
      request.slot = out ? state_.pin_if_there(block) : state_.pin(block);
      if (!request.slot && out) {
        state_.decode(request.in_place);
      } else if (!request.slot) {
        requests_.pop_back();
        return false;
      }
      return true;
    }

    // The place of a block that is wanted whole, in one piece, if it is to be decoded there.
    std::byte* place_of_block(const Extent& extent) const {
      const std::uint64_t block_bytes = engine_.sizes_.slot_bytes;
      if (!engine_.in_place_ || extent.length != block_bytes) return nullptr;
      if (engine_.end_ - extent.offset < block_bytes) return nullptr;  // rows that do not exist
      const auto target = feed_.target(extent);
      return target && target->length == block_bytes ? target->out : nullptr;
    }

    void let_go(const Request& request) {
      if (request.slot) state_.unpin(*request.slot);
    }

    DecodeEngine& engine_;
    State& state_;
    Feed& feed_;
    std::optional<Extent> waiting_;  // taken from the feed, but there was no slot yet
    std::deque<Request> requests_;
  };

  const ChunkGrid& grid_;
  const std::uint64_t end_;  // the size of all rows in bytes
  const Budget budget_;
  const DecodeSizes sizes_;
  Reservation working_;
  PageBuffer memory_;
  const bool in_place_;
  BlockReader::Counters counters_;
  PerProcess<State> state_;
};

}  // namespace

std::unique_ptr<Engine> make_decode_engine(const Layout& layout, const Budget& budget) {
  return std::make_unique<DecodeEngine>(layout, budget);
}

}  // namespace evenkeel
