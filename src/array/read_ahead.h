// Batches read ahead of the one who uses them, on threads of the library's own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "array/row_feed.h"

namespace evenkeel {

// Who knows what the batches are. Called from the library's threads.
class BatchMaker {
 public:
  // Says what batch `number` is and which memory of `slot` it goes to. The job stays the maker's
  // and must live until the batch is finished. One call at a time.
  virtual Job& prepare(std::size_t slot, std::uint64_t number) = 0;
  // The rows are in place; turn them into what the user gets. One call at a time for each slot.
  virtual void finish(std::size_t /*slot*/, std::uint64_t /*number*/) {}

 protected:
  ~BatchMaker() = default;
};

// Batch `number` goes into slot number modulo slots. One thread reads. A second one may help it:
// where finishing is work it finishes, so that the disk's queue is not kept waiting, and it reads a
// batch itself when it has nothing to finish and the engine has a lane for it. With one slot,
// unless it is waited for with a limit, or where no thread can be started, batches are made when
// they are asked for, on the caller's thread. take, wait_for, give_back, seek and the destructor:
// one thread at a time.
class ReadAhead final {
 public:
  struct Options {
    std::size_t slots = 1;
    std::uint64_t end = UINT64_MAX;  // the number after the last batch
    bool finish_on_own_thread = false;
    bool second_reads = false;  // if it may: this takes the memory of a second mover
    std::optional<std::uint64_t> merge_gap = {};
    std::uint64_t budget_limit = 0;  // sizes the plans; see RowFeed::memory
  };
  // `layout`, `engine` and `maker` must outlive it.
  ReadAhead(const Layout& layout, Engine& engine, BatchMaker& maker, const Options& options);
  ~ReadAhead();

  // Waits for a batch and returns its slot, which is the caller's until it is given back. Batches
  // are taken in order. Throws what reading it threw, and throws it again until `seek`.
  std::size_t take(std::uint64_t number);
  // Waits until `take` would not, at most so long. False: not yet.
  bool wait_for(std::uint64_t number, std::chrono::nanoseconds most);
  void give_back(std::uint64_t number);
  // The next batch to be taken is `number`; all that were taken are given back.
  void seek(std::uint64_t number);

  std::size_t slots() const { return slots_.size(); }
  // Made in this process, not before a fork: only then may it be used.
  bool owned_here() const;

 private:
  // kFailed: reading or finishing it threw, and failure_ is what.
  enum class State { kFree, kReading, kRead, kReady, kFailed };
  class Lane;
  struct Slot {
    State state = State::kFree;
    std::uint64_t number = 0;
    const Lane* reader = nullptr;
    Job* job = nullptr;
  };

  // A thread's own way through the engine.
  class Lane final : JobSource {
   public:
    Lane(ReadAhead& owner, std::uint64_t budget_limit);
    void run(std::uint64_t most_batches);  // one after the other while slots are free
    void cancel() { mover_.cancel(); }
    void reset() { mover_.reset(); }

   private:
    Job* next_job() override;
    void job_done(Job& job) override { owner_.job_done(job); }
    ReadAhead& owner_;
    RowFeed mover_;
    std::uint64_t allowed_ = 0;
  };

  bool has_threads(std::uint64_t number);
  bool start(std::uint64_t number);
  void stop();
  void read();
  void help();
  void finish(Slot& slot, std::unique_lock<std::mutex>& lock);
  void make_now(std::uint64_t number);
  Job* next_job(const Lane& lane);
  void job_done(Job& job);
  void require_unchanged(const Job& job);
  void run(Lane& lane, std::uint64_t most_batches);
  void wake_all();

  // With the lock held:
  bool reading_is_over() const { return stopping_ || failure_ || next_to_read_ >= options_.end; }
  bool can_read() { return !reading_is_over() && slot_of(next_to_read_).state == State::kFree; }
  bool second_can_read() { return second_ && engine_.lanes() > 1 && can_read(); }
  bool coming(std::uint64_t number) {
    return has(number, State::kReading) || has(number, State::kRead);
  }
  Slot* oldest_read();
  Slot& slot_of(std::uint64_t number) { return slots_[number % slots_.size()]; }
  bool can_be_taken(std::uint64_t number) {
    // What was begun before a failure is still good.
    return has(number, State::kReady) || (failure_ && !coming(number));
  }
  bool has(std::uint64_t number, State state) {
    return slot_of(number).state == state && slot_of(number).number == number;
  }

  const Layout& layout_;
  Engine& engine_;
  BatchMaker& maker_;
  const Options options_;
  const pid_t owner_;
  Lane first_;                  // the reading thread's
  std::optional<Lane> second_;  // the helping thread's
  std::mutex preparing_;

  std::mutex mutex_;  // guards all below
  // One for each who waits, so that nobody is woken for another's sake.
  std::condition_variable slot_free_;    // the reading thread
  std::condition_variable help_wanted_;  // the helping thread
  std::condition_variable batch_ready_;  // the user
  std::vector<Slot> slots_;
  std::uint64_t next_to_read_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread reader_, helper_;
  bool threaded_ = false;                    // changes only while there are no threads
  bool even_for_one_slot_ = false;           // threads, as someone waits with a limit
  std::optional<std::uint64_t> wanted_now_;  // without threads: the one batch to be read
};

}  // namespace evenkeel
