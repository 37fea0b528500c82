// The engine `direct`: O_DIRECT with many requests in flight. It reads at the speed of the disk and
// does not use the page cache.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/memory.h"
#include "base/per_process.h"
#include "base/retry_policy.h"
#include "base/sys.h"
#include "engine/engines.h"
#include "engine/files.h"
#include "engine/queue.h"
#include "engine/rings.h"

namespace evenkeel {
namespace {

// More bytes in flight do not make large reads faster (1 MiB x 4 reaches the disk's limit).
constexpr std::uint64_t kMostBytesInFlight = 8 << 20;
// Reads into the caller's memory take none of the engine's. Into new memory, 64 MiB in flight were
// faster than 32.
constexpr std::uint64_t kMostInPlace = 64 << 20;
constexpr std::uint64_t kLeastBuffers = 128 << 10;
constexpr std::uint64_t kMaxRequest = 1 << 20;

// Whole pages, if there are any: the next request of the same memory then begins at a page, too.
std::uint64_t longest_request(std::uint64_t buffer_bytes, std::uint64_t alignment) {
  const std::uint64_t longest = std::min(kMaxRequest, buffer_bytes / 4);
  const std::uint64_t page = std::max(alignment, sys::page_size());
  return round_down(longest, longest < page ? alignment : page);
}

class DirectEngine final : public Engine {
 public:
  DirectEngine(const Layout& layout, const Budget& budget, std::uint64_t buffer_bytes,
               std::uint64_t alignment, QueueChoice choice)
      : layout_(layout),
        memory_(budget, buffer_bytes, "read buffers"),
        limits_{alignment, longest_request(memory_.size(), alignment), kMergeGap},
        rings_([this, budget, choice] {
          return std::make_unique<Rings>(layout_, budget, span(), choice);
        }),
        report_{EngineKind::kDirect, EngineKind::kDirect, rings_.get().first().describe(), ""} {
    memory_.keep_in_children();
  }

  void run(Feed& feed) override {
    const Rings::Use use(rings_.get());
    use.ring.mutex.assert_held();
    use.ring.files.forget_used();
    Run(*this, use.ring, feed).work();
  }

  // Called by feeds, within `run`.
  void require_unchanged(std::uint32_t file) override {
    Ring& ring = rings_.get().current();
    ring.mutex.assert_held();
    ring.files.verify(file);
  }
  EngineLimits limits() const override { return limits_; }
  EngineTotals totals() const override {
    const std::uint64_t finished = finished_.load(), started = started_.load();
    return {started, started - std::min(started, finished), bytes_.load(), 0, wait_ns_.load()};
  }
  EngineReport report() const override {
    EngineReport report = report_;
    if (broke_down_in_ == ::getpid()) report.how = "O_DIRECT, threads (io_uring broke down)";
    return report;
  }

 private:
  // One call of run, with the ring's mutex held.
  class Run {
   public:
    Run(DirectEngine& engine, Ring& ring, Feed& feed) REQUIRES(ring.mutex)
        : engine_(engine),
          ring_(ring),
          feed_(feed),
          most_in_place_(std::min(kMostInPlace, feed.most_in_flight())),
          reads_(ring.queue->depth()) {
      free_.reserve(reads_.size());
      for (std::uint32_t id = ring.queue->depth(); id-- > 0;) free_.push_back(id);
    }

    void work() {
      ring_.mutex.assert_held();
      try {
        while (fill(), in_flight_ > 0) {
          if (feed_.has_other_work()) {
            take_completions(0);  // starts the reads
            feed_.do_other_work();
          } else {
            take_completions(std::clamp<std::size_t>(in_flight_ / 4, 1, 16));
          }
        }
        ring_.files.verify_used();
      } catch (...) {
        drain();
        throw;
      }
    }

   private:
    struct Read {
      Extent extent;
      std::byte* buffer = nullptr;
      std::uint64_t wanted = 0;  // bytes up to the end of the file
      std::uint64_t done = 0;
      std::optional<std::uint64_t> ticket;  // the arena's ticket, unless it is read in place
      RetryPolicy retry;
    };

    void fill() REQUIRES(ring_.mutex) {
      while (!free_.empty() && bytes_in_flight_ < kMostBytesInFlight &&
             in_place_ < most_in_place_) {
        if (!waiting_) {
          Extent extent;
          if (!feed_.next(extent)) return;
          waiting_ = extent;
        }
        if (!start(*waiting_)) return;
        waiting_.reset();
      }
    }

    bool start(const Extent& extent) REQUIRES(ring_.mutex) {
      // A read in flight pins its file. With many files, wait until some reads have finished.
      if (in_flight_ > 0 && !ring_.files.has_room_for(extent.file)) return false;
      Read read{extent, extent.into, 0, 0, std::nullopt, {}};
      if (!read.buffer) {
        const auto piece = ring_.arena.take(extent.length);
        if (!piece) return false;
        read.buffer = ring_.memory.data() + piece->begin;
        read.ticket = piece->ticket;
      }
      read.wanted = std::min(extent.length, ring_.files.size(extent.file) - extent.offset);
      const std::uint32_t id = free_.back();
      try {
        push(id, read, ring_.files.pin(extent.file));
      } catch (...) {
        if (read.ticket) ring_.arena.give_back(*read.ticket);
        throw;
      }
      free_.pop_back();
      reads_[id] = read;
      ++in_flight_;
      add(engine_.started_, 1);
      (extent.into ? in_place_ : bytes_in_flight_) += extent.length;
      return true;
    }

    void push(std::uint32_t id, const Read& read, int fd) REQUIRES(ring_.mutex) {
      ring_.queue->push({fd, read.extent.file, id, read.buffer + read.done,
                         static_cast<std::uint32_t>(read.extent.length - read.done),
                         read.extent.offset + read.done});
    }

    void take_completions(std::size_t enough) REQUIRES(ring_.mutex) {
      Completion completions[Ring::kDepth];
      const std::int64_t began = sys::monotonic_ns();
      const std::size_t count = ring_.queue->wait(enough, completions);
      add(engine_.wait_ns_, static_cast<std::uint64_t>(sys::monotonic_ns() - began));
      std::exception_ptr first_failure;
      for (std::size_t i = 0; i < count; ++i) {
        try {
          complete(completions[i]);
        } catch (...) {
          if (!first_failure) first_failure = std::current_exception();
        }
      }
      if (first_failure) std::rethrow_exception(first_failure);
    }

    void complete(const Completion& completion) REQUIRES(ring_.mutex) {
      Read& read = reads_[completion.id];
      const std::uint64_t at = read.extent.offset + read.done;
      if (completion.result > 0) read.done += static_cast<std::uint64_t>(completion.result);
      if (read.done < read.wanted && may_go_on(read, completion)) {
        // O_DIRECT can continue at block boundaries only.
        read.done = round_down(read.done, engine_.limits_.alignment);
        push(completion.id, read, ring_.files.pin(read.extent.file));
        ring_.files.unpin(read.extent.file);
        return;
      }
      const Read finished = read;
      Finish finish{*this, completion.id, finished};
      if (failed_) return;
      const Segment& segment = engine_.layout_.segments[finished.extent.file];
      if (completion.result < 0) {
        throw Error::system("read", -completion.result).in(segment.path).at(at);
      }
      if (finished.done < finished.wanted) throw_truncated(segment, at);
      feed_.arrived(finished.extent, finished.buffer);
    }

    bool may_go_on(Read& read, const Completion& completion) const {
      if (failed_) return false;
      if (completion.result < 0) return read.retry.try_again(-completion.result);
      read.retry.moved();
      return completion.result >= static_cast<std::int32_t>(engine_.limits_.alignment);
    }

    // Releases the resources of a read, even if the feed throws.
    struct Finish {
      Run& run;
      std::uint32_t id;
      const Read& read;
      ~Finish() {
        run.ring_.mutex.assert_held();
        run.ring_.files.unpin(read.extent.file);
        if (read.ticket) run.ring_.arena.give_back(*read.ticket);
        run.free_.push_back(id);
        --run.in_flight_;
        add(run.engine_.finished_, 1);
        add(run.engine_.bytes_, read.done);
        (read.extent.into ? run.in_place_ : run.bytes_in_flight_) -= read.extent.length;
      }
    };

    // The kernel may still be writing into our buffers: wait for the last read before leaving.
    void drain() REQUIRES(ring_.mutex) {
      failed_ = true;
      try {
        while (in_flight_ > 0) take_completions(1);
      } catch (...) {
        ring_.start_over();
        add(engine_.finished_, in_flight_);
        engine_.broke_down_in_ = ::getpid();
        for (std::uint32_t id = 0; id < reads_.size(); ++id) {
          if (std::ranges::find(free_, id) == free_.end()) {
            ring_.files.unpin(reads_[id].extent.file);
          }
        }
      }
    }

    DirectEngine& engine_;
    Ring& ring_;
    Feed& feed_;
    const std::uint64_t most_in_place_;
    std::vector<Read> reads_;
    std::vector<std::uint32_t> free_;
    std::optional<Extent> waiting_;  // taken from the feed, but there was no room yet
    std::size_t in_flight_ = 0;
    std::uint64_t bytes_in_flight_ = 0;  // in the engine's own memory
    std::uint64_t in_place_ = 0;         // bytes in flight in the caller's memory
    bool failed_ = false;
  };

  std::span<std::byte> span() const { return {memory_.data(), memory_.size()}; }

  using Total = std::atomic<std::uint64_t>;
  static void add(Total& total, std::uint64_t number) {
    total.fetch_add(number, std::memory_order_relaxed);
  }

  const Layout& layout_;
  PageBuffer memory_;
  const EngineLimits limits_;
  PerProcess<Rings> rings_;
  const EngineReport report_;
  Total started_ = 0, finished_ = 0, bytes_ = 0, wait_ns_ = 0;
  std::atomic<pid_t> broke_down_in_ = 0;  // the process whose ring failed; a child has its own
};

// Some filesystems accept O_DIRECT in open and refuse the reads, so this reads one block.
bool takes_direct_reads(const Segment& segment, std::uint64_t alignment) {
  const Fd fd = open_again(segment, O_DIRECT);
  void* block = nullptr;
  if (::posix_memalign(&block, alignment, alignment) != 0) return true;
  const std::unique_ptr<void, decltype(&std::free)> owner(block, &std::free);
  const bool refused =
      sys::pread(fd.get(), block, alignment, 0) < 0 && (errno == EINVAL || errno == EOPNOTSUPP);
  return !refused;
}

}  // namespace

std::unique_ptr<Engine> make_direct_engine(const Layout& layout, const Budget& budget,
                                           std::string& why_not, QueueChoice queue) {
  std::uint64_t alignment = 512;
  for (const Segment& segment : layout.segments) {
    try {
      const Fd fd = open_again(segment, O_DIRECT);
      const sys::DirectAlignment asked = sys::direct_alignment(fd.get());
      // If the kernel does not say, use whole pages, which every device supports.
      const std::uint64_t file_alignment =
          asked.offset != 0 ? std::max(asked.offset, asked.memory) : sys::page_size();
      alignment = std::max(alignment, file_alignment);
    } catch (const Error& error) {
      if (error.code() != EINVAL && error.code() != EOPNOTSUPP) throw;
      why_not = "the filesystem of " + segment.path + " does not take O_DIRECT";
      return nullptr;
    }
  }
  if (!layout.segments.empty() && !takes_direct_reads(layout.segments.front(), alignment)) {
    why_not = "the filesystem of " + layout.segments.front().path +
              " accepts O_DIRECT when it opens a file, but refuses the reads";
    return nullptr;
  }
  const std::uint64_t buffer_bytes = buffer_size(budget, kLeastBuffers, kMostBytesInFlight);
  if (alignment > buffer_bytes / 4) {
    why_not =
        "O_DIRECT needs blocks of " + format_size(alignment) + " here, too large for the budget";
    return nullptr;
  }
  return std::make_unique<DirectEngine>(layout, budget, buffer_bytes, alignment, queue);
}

}  // namespace evenkeel
