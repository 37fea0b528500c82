// Reads batches ahead on threads of the library.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "array/batch_reader.h"
#include "base/mutex.h"
#include "metrics/live.h"

namespace evenkeel {

// How many batches to read ahead to keep a disk busy, from `fewest` to 16. A disk reaches its full
// speed with about a hundred small reads in flight, or a few large ones. Some of the batches ahead
// are already complete, so this plans for more.
std::size_t batches_ahead(std::uint64_t reads_of_batch, std::uint64_t batch_bytes,
                          std::size_t fewest);

// Batch `number` goes into slot number modulo the number of slots, which may shrink later. There is
// one reading thread for each stream. A helper thread may finish batches, so that finishing does
// not keep the disk's queue waiting. It reads a batch of the first stream itself when it has
// nothing to finish and the engine can serve two threads at once. A batch is read when all its
// streams have read their part. With one slot (unless `take` has a deadline), or if no thread can
// be started, a batch is read when it is requested, on the caller's thread. Batches are taken in
// order. All calls may be made from several threads; each batch is taken by one of them.
class ReadAhead final : LiveObject {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::size_t slots = 1;
    std::uint64_t end = UINT64_MAX;  // the number after the last batch
    bool finish_on_own_thread = false;
    bool second_reads = false;  // the helper may read; takes the memory of a second feed
    std::optional<std::uint64_t> merge_gap = {};
    std::uint64_t budget_limit = 0;  // sizes the plans; see RowFeed::memory
    RowCache* cache = nullptr;       // of the only stream
    std::string closed_hint = {};    // hint of the error that is thrown after `close`
    const char* what = "read";       // names the user in that error
    std::optional<LiveKind> kind = LiveKind::kLoader;  // empty: not in metrics
    std::string batch = {};                            // describes a batch, for metrics
    // Called when reading must stop, so that a BatchMaker::finish that waits returns or throws
    // soon. Must not wait itself.
    std::function<void()> interrupt = {};
  };
  // Layouts, engines, caches and `maker` must live until `close` returns.
  ReadAhead(std::vector<ReadStream> streams, BatchMaker& maker, const Options& options);
  // One stream, with the merge_gap and the cache of the options.
  ReadAhead(const Layout& layout, Engine& engine, BatchMaker& maker, const Options& options);
  ~ReadAhead();

  enum class Outcome { kTaken, kTimeout, kEnd };
  // Waits for the next batch and takes it: `use(slot, number)` is called under this object's lock,
  // and the slot belongs to the caller until it is given back. Throws the error of the read, and
  // throws it again until `seek` or `keep_slots`. Throws Error (kClosed) after `close`, even if it
  // was already waiting.
  using Use = std::function<void(std::size_t slot, std::uint64_t number)>;
  Outcome take(const Use& use, std::optional<Clock::time_point> deadline = {}) EXCLUDES(mutex_);
  // Does nothing if the batch is not taken, for example after a seek.
  void give_back(std::uint64_t number) EXCLUDES(mutex_);
  // Continues with batch `number`; `end` is the number after the last. All taken batches are given
  // back. `while_stopped` is called while no thread reads. If it throws, the exception is passed on
  // and the position does not change. With `from`, nothing happens if the position is no longer
  // `from`, because another thread has moved it.
  void seek(std::uint64_t number, std::uint64_t end,
            const std::function<void()>& while_stopped = {}, std::optional<std::uint64_t> from = {})
      EXCLUDES(mutex_);
  // Keeps only `count` slots, or a few more if taken batches need them. Batches that were read but
  // not taken are read again. `while_stopped` gets the number of slots and the taken batches. It is
  // called while no thread reads and may throw only std::bad_alloc. Does nothing after `close`.
  using WhileStopped = std::function<void(std::size_t count, std::span<const std::uint64_t> taken)>;
  void keep_slots(std::size_t count, const WhileStopped& while_stopped) EXCLUDES(mutex_);
  std::uint64_t position() const EXCLUDES(mutex_);  // the batch that `take` returns next
  std::uint64_t end() const EXCLUDES(mutex_);
  // Stops reading; waiting calls throw. Waits for the threads, at most until the deadline if there
  // is one. Returns false if a thread is still waiting for the disk; then nothing that it uses may
  // be destroyed.
  bool close(std::optional<Clock::time_point> deadline = {}) EXCLUDES(mutex_);

  // Whether it was made in this process, not before a fork. Otherwise it must not be used.
  bool owned_here() const;

  // Counters of all calls of `take` so far. May be called from any thread; does not wait.
  LiveFigures figures() const;

 private:
  enum class State {
    kFree,
    kReading,
    kRead,    // not finished yet
    kReady,   // finished, and can be taken
    kTaken,   // owned by the caller
    kFailed,  // reading or finishing it threw; failure_ has the exception
  };
  class Reader;
  // The progress of one stream with the batch of a slot.
  struct StreamState {
    enum class State { kWaiting, kBegun, kDone };
    State state = State::kWaiting;
    const Reader* reader = nullptr;
    Job* job = nullptr;
  };
  struct Slot {
    State state = State::kFree;
    std::uint64_t number = 0;
    bool begun = false;                // BatchMaker::begin was called
    std::vector<StreamState> streams;  // valid while the slot is kReading
  };

  // The jobs of one thread.
  class Reader final : JobSource {
   public:
    Reader(ReadAhead& owner, std::size_t stream, std::uint64_t budget_limit);
    std::size_t stream() const { return stream_; }
    void run(std::uint64_t most_batches);  // one after the other, while slots are free
    void cancel() { runner_.cancel(); }
    void reset() { runner_.reset(); }

   private:
    Job* next_job() override;
    void job_done(Job& job) override { owner_.job_done(*this, job); }
    ReadAhead& owner_;
    const std::size_t stream_;
    FeedRunner runner_;
    std::uint64_t allowed_ = 0;
  };

  std::optional<LiveFigures> live_figures() const override { return figures(); }
  LiveLabels live_labels() const override;
  // Measures how long a call of `take` waits, from the first time that it has to.
  class WaitClock;
  Outcome take_next(const Use& use, std::optional<Clock::time_point> deadline, WaitClock& waits)
      EXCLUDES(mutex_);
  bool start_threads(bool also_for_one_slot) REQUIRES(mutex_);
  // Waits while another caller stops the threads; false at the deadline.
  bool wait_for_change(std::optional<Clock::time_point> deadline) REQUIRES(mutex_);
  bool stop_threads(std::optional<Clock::time_point> deadline) REQUIRES(mutex_);
  void read_on_demand(std::uint64_t number) REQUIRES(mutex_);
  bool wait(std::optional<Clock::time_point> deadline) REQUIRES(mutex_);
  void read_loop(std::size_t stream) EXCLUDES(mutex_);
  void help_loop() EXCLUDES(mutex_);
  void finish(Slot& slot) REQUIRES(mutex_);
  Job* next_job(const Reader& reader) EXCLUDES(mutex_);
  void begin(std::size_t slot, std::uint64_t number) REQUIRES(preparing_) EXCLUDES(mutex_);
  void job_done(const Reader& reader, Job& job) EXCLUDES(mutex_);
  // Whether one stream has nothing more to read.
  bool stream_is_over(std::size_t stream) const REQUIRES(mutex_) {
    return stopping_ || failure_ || next_to_read_[stream] >= end_;
  }
  void run(Reader& reader, std::uint64_t most_batches) EXCLUDES(mutex_);
  void wake_all();
  Error closed_error() const;

  bool reading_is_over() const REQUIRES(mutex_);
  bool can_read(std::size_t stream) REQUIRES(mutex_);
  bool second_can_read() REQUIRES(mutex_) {
    return second_ && streams_.front().engine.concurrency() > 1 && can_read(0);
  }
  bool coming(std::uint64_t number) REQUIRES(mutex_) {
    return has(number, State::kReading) || has(number, State::kRead);
  }
  bool none_reading() const REQUIRES(mutex_);
  // The next batch to finish. None while an older batch is being read: batches are finished in
  // order.
  Slot* oldest_read() REQUIRES(mutex_);
  Slot& slot_of(std::uint64_t number) REQUIRES(mutex_) { return slots_[number % slots_.size()]; }
  bool has(std::uint64_t number, State state) REQUIRES(mutex_) {
    return slot_of(number).state == state && slot_of(number).number == number;
  }

  LiveEntry live_;
  std::atomic<std::uint64_t> taken_ = 0, waited_ns_ = 0;
  const std::vector<ReadStream> streams_;
  BatchMaker& maker_;
  const Options options_;
  const pid_t owner_;
  std::deque<Reader> readers_;    // of the reading threads, one for each stream
  std::optional<Reader> second_;  // of the helper thread; reads the first stream
  BatchReader on_demand_;
  Mutex preparing_;  // held during BatchMaker::prepare

  mutable Mutex mutex_;
  // One for each kind of waiter, so that no thread is woken without a reason.
  CondVar slot_free_;    // wakes the reading threads
  CondVar help_wanted_;  // wakes the helper thread
  CondVar changed_;      // wakes callers: a batch is ready, or a stop is over
  std::vector<Slot> slots_ GUARDED_BY(mutex_);
  std::vector<std::uint64_t> next_to_read_ GUARDED_BY(mutex_);  // one for each stream
  std::uint64_t next_to_take_ GUARDED_BY(mutex_) = 0;
  std::uint64_t end_ GUARDED_BY(mutex_);
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;       // the threads must end
  bool changing_ GUARDED_BY(mutex_) = false;       // one caller stops the threads; others wait
  bool on_demand_now_ GUARDED_BY(mutex_) = false;  // a caller is reading a batch itself
  int threads_ GUARDED_BY(mutex_) = 0;             // threads that have not ended yet
  std::vector<std::thread> reader_threads_ GUARDED_BY(mutex_);  // empty, or one for each stream
  std::thread helper_thread_ GUARDED_BY(mutex_);
};

}  // namespace evenkeel
