// The engine `decode`, for compressed chunks. Several threads decode blocks of rows into memory
// that is reserved from the budget. The blocks stay there until other blocks need the memory.
#include <algorithm>
#include <chrono>
#include <cstring>
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

constexpr std::uint64_t kMostDecodedRequest = 1 << 20;
constexpr std::uint64_t kMostBlockSlots = 1024;
constexpr std::uint64_t kMostDecodeThreads = 32;
constexpr std::uint64_t kMostIndexBytes = 1 << 20;  // for cached shard indexes
constexpr std::uint64_t kMostPendingExtents = 512;
constexpr std::uint64_t kTables = 192 << 10;  // for the tables of requests and slots
constexpr std::uint64_t kNoBlock = UINT64_MAX;

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
    // Threads also wait for the disk, so there are more of them than processors.
    const std::uint64_t wanted = std::min({2 * cores + 2, kMostDecodeThreads, grid.blocks});
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
    return threads * reader_bytes + (indexes + threads) * index_bytes + max_request() + kTables;
  }
  // A request may begin and end inside a block, and needs all its blocks in memory at once.
  std::uint64_t max_request() const {
    return std::min(kMostDecodedRequest, slots / 2 * slot_bytes);
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
        scratch_(sizes_.max_request(), "rows of two chunks"),
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
    return {1, sizes_.max_request(), std::min<std::uint64_t>(64 << 10, grid_.block_bytes / 2)};
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
  // Memory for one block.
  struct Slot {
    std::uint64_t block = kNoBlock;
    std::uint64_t last_use = 0;
    std::uint32_t pins = 0;  // requests that wait for it or use it
    bool in_work = false;    // queued, or being decoded
    std::exception_ptr failure = {};
  };

  // The threads and the table of blocks of one process. Thread-safe.
  class State {
   public:
    explicit State(DecodeEngine& engine)
        : engine_(engine), indexes_(engine.sizes_.indexes), slots_(engine.sizes_.slots) {
      threads_.reserve(engine.sizes_.threads);
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
    // memory, decoding starts. Empty if all slots are in use.
    std::optional<std::uint32_t> pin(std::uint64_t block) EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      const auto known = by_block_.find(block);
      if (known != by_block_.end()) {
        Slot& slot = slots_[known->second];
        ++slot.pins;
        slot.last_use = ++clock_;
        return known->second;
      }
      std::optional<std::uint32_t> oldest;
      for (std::uint32_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].pins > 0 || slots_[i].in_work) continue;
        if (!oldest || slots_[i].last_use < slots_[*oldest].last_use) oldest = i;
      }
      if (!oldest) return std::nullopt;
      Slot& slot = slots_[*oldest];
      if (slot.block != kNoBlock) by_block_.erase(slot.block);
      slot = {block, ++clock_, 1, true, {}};
      by_block_[block] = *oldest;
      waiting_.push_back(*oldest);
      start_thread_if_needed();
      work_.notify_one();
      return oldest;
    }

    void unpin(std::uint32_t number) EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      --slots_[number].pins;
    }

    // Whether the slot is decoded, after waiting up to `timeout`. Throws the error of decoding.
    bool ready(std::uint32_t number, std::chrono::milliseconds timeout) EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      if (slots_[number].in_work && threads_.empty()) {
        decode_next(own_reader());
      } else if (slots_[number].in_work) {
        done_.wait_until(mutex_, std::chrono::steady_clock::now() + timeout);
      }
      if (slots_[number].in_work) return false;
      if (slots_[number].failure) std::rethrow_exception(slots_[number].failure);
      return true;
    }

    // Drops queued slots and waits for those that are being decoded.
    void stop_work() EXCLUDES(mutex_) {
      const MutexLock lock(mutex_);
      for (const std::uint32_t number : waiting_) forget(number);
      waiting_.clear();
      while (decoding_ > 0) done_.wait(mutex_);
    }

    Mutex running;  // held by the thread in `run`

   private:
    void forget(std::uint32_t number) REQUIRES(mutex_) {
      by_block_.erase(slots_[number].block);
      slots_[number].block = kNoBlock;
      slots_[number].in_work = false;
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
      const std::uint32_t number = waiting_.front();
      waiting_.pop_front();
      const std::uint64_t block = slots_[number].block;
      ++decoding_;
      mutex_.unlock();
      std::exception_ptr failure;
      try {
        reader.read(block, engine_.memory_of(number));
      } catch (...) {
        failure = std::current_exception();
      }
      mutex_.lock();
      --decoding_;
      slots_[number].in_work = false;
      if (failure) {
        forget(number);  // the next request for this block tries again
        slots_[number].failure = failure;
      }
      done_.notify_all();
    }

    DecodeEngine& engine_;
    ShardIndexes indexes_;
    Mutex mutex_;
    CondVar work_, done_;
    std::vector<Slot> slots_ GUARDED_BY(mutex_);
    std::unordered_map<std::uint64_t, std::uint32_t> by_block_ GUARDED_BY(mutex_);
    std::deque<std::uint32_t> waiting_ GUARDED_BY(mutex_);  // slots to be decoded
    std::uint64_t clock_ GUARDED_BY(mutex_) = 0;
    std::size_t idle_ GUARDED_BY(mutex_) = 0, decoding_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
    std::unique_ptr<BlockReader> own_reader_ GUARDED_BY(mutex_);
    std::vector<std::thread> threads_;  // grows only in `pin`, with the mutex held
  };

  // One call of run.
  class Run {
   public:
    Run(DecodeEngine& engine, State& state, Feed& feed)
        : engine_(engine), state_(state), feed_(feed) {}
    ~Run() {
      for (const Request& request : requests_) let_go(request);
      state_.stop_work();
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    void work() {
      while (true) {
        fill();
        if (requests_.empty()) return;
        if (feed_.cancelled()) return;
        Request& first = requests_.front();
        if (!arrived(first)) {
          if (feed_.has_other_work()) feed_.do_other_work();
          continue;
        }
        deliver(first);
        let_go(first);
        requests_.pop_front();
      }
    }

   private:
    struct Request {
      Extent extent;
      std::uint64_t length = 0;            // of the extent, cut at the end of the array
      std::vector<std::uint32_t> slots{};  // of its first blocks; all of them once slots were free
      std::size_t ready = 0;               // how many of these slots are decoded
    };

    std::uint64_t first_block(const Request& request) const {
      return request.extent.offset / engine_.grid_.block_bytes;
    }
    std::size_t block_count(const Request& request) const {
      const std::uint64_t last = request.extent.offset + request.length - 1;
      return last / engine_.grid_.block_bytes - first_block(request) + 1;
    }

    // Takes requests while there are slots for their blocks.
    void fill() {
      while (requests_.size() < kMostPendingExtents) {
        if (requests_.empty() || requests_.back().slots.size() == block_count(requests_.back())) {
          Request next;
          if (!feed_.next(next.extent)) return;
          next.length = std::min(next.extent.length, engine_.end_ - next.extent.offset);
          next.slots.reserve(block_count(next));  // push_back must not fail after `pin`
          requests_.push_back(std::move(next));
        }
        Request& last = requests_.back();
        while (last.slots.size() < block_count(last)) {
          const auto slot = state_.pin(first_block(last) + last.slots.size());
          if (!slot) return;
          last.slots.push_back(*slot);
        }
      }
    }

    bool arrived(Request& request) {
      while (request.ready < request.slots.size()) {
        const std::chrono::milliseconds timeout(feed_.has_other_work() ? 1 : 50);
        if (!state_.ready(request.slots[request.ready], timeout)) return false;
        ++request.ready;
      }
      return request.ready == block_count(request);
    }

    void deliver(const Request& request) {
      const std::uint64_t block_bytes = engine_.grid_.block_bytes;
      std::uint64_t within = request.extent.offset % block_bytes;
      if (request.slots.size() == 1) {
        feed_.arrived(request.extent, engine_.memory_of(request.slots[0]).data() + within);
        return;
      }
      std::byte* const begin = engine_.scratch_.data();
      std::uint64_t done = 0;
      for (const std::uint32_t slot : request.slots) {
        const std::uint64_t length = std::min(block_bytes - within, request.length - done);
        std::memcpy(begin + done, engine_.memory_of(slot).data() + within, length);
        done += length;
        within = 0;
      }
      feed_.arrived(request.extent, begin);
    }

    void let_go(const Request& request) {
      for (const std::uint32_t slot : request.slots) state_.unpin(slot);
    }

    DecodeEngine& engine_;
    State& state_;
    Feed& feed_;
    std::deque<Request> requests_;
  };

  std::span<std::byte> memory_of(std::uint32_t slot) const {
    return {memory_.data() + slot * sizes_.slot_bytes, sizes_.slot_bytes};
  }

  const ChunkGrid& grid_;
  const std::uint64_t end_;  // the size of all rows in bytes
  const Budget budget_;
  const DecodeSizes sizes_;
  Reservation working_;
  PageBuffer memory_;
  Pages scratch_;  // for the thread in `run`
  BlockReader::Counters counters_;
  PerProcess<State> state_;
};

}  // namespace

std::unique_ptr<Engine> make_decode_engine(const Layout& layout, const Budget& budget) {
  return std::make_unique<DecodeEngine>(layout, budget);
}

}  // namespace evenkeel
