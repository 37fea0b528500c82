// The pipeline of all loaders, from positions to batches. A Schedule determines which samples a
// batch has. An Assembler determines what to read for them and how to finish a batch. The pipeline
// manages the steps, reading ahead and the memory of batches.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "array/lending_pool.h"
#include "array/read_ahead.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "base/read_ahead_memory.h"
#include "loader/schedule.h"

namespace evenkeel {

// Memory of a batch that does not fit its buffer.
struct ExtraMemory {
  Reservation share;  // ends before the memory does if the caller keeps the batch
  Pages pages;
};

// The part that differs between loaders. `add_slot` is called before all others. There is one call
// of `job` at a time, and one of `finish` for each slot.
class Assembler {
 public:
  // A batch that is being read.
  struct Filling {
    std::size_t slot = 0;
    std::uint64_t step = 0;
    std::span<const std::uint64_t> rows;  // see Schedule::Sample::row; set if wants_rows
    std::vector<SamplePiece> pieces;      // the samples; set if wants_pieces
    std::vector<std::byte*> fields;       // where the fields of the finished batch go
  };
  // A finished batch.
  struct Finished {
    std::vector<const std::byte*> fields;
    std::vector<std::uint64_t> sizes;                // in bytes; empty if all are as expected
    std::vector<std::shared_ptr<ExtraMemory>> keep;  // memory that the pool does not own
  };

  // The largest size of each field of a finished batch: x and y, or one for each array.
  virtual std::vector<std::uint64_t> field_bytes() const = 0;
  // Allocates what one more batch needs while it is read, except its fields. Throws Error
  // (kBudget).
  virtual void add_slot(const Budget& budget) = 0;
  virtual std::uint64_t slot_bytes() const = 0;    // of that memory
  virtual void keep_slots(std::size_t count) = 0;  // frees the slots after the first `count`
  // Called if the budget has no room for a batch. True: there is more room now, so try again.
  virtual bool make_room(std::uint64_t /*bytes*/) { return false; }
  // "32 x 1,024 tokens", for errors.
  virtual std::string describe_batch() const = 0;
  virtual std::size_t stream_count() const = 0;
  // False if streams have nothing to read, because `finish` takes rows from its own readers.
  virtual bool streams_read() const { return true; }
  virtual bool wants_rows() const { return true; }
  virtual std::uint64_t reads_of_row() const { return 1; }  // at most
  virtual bool wants_pieces() const { return false; }
  // What the batches are read from. The engines live at least as long as this object.
  virtual std::vector<ReadStream> streams() = 0;
  // What a stream reads for a batch. The job stays valid until the batch is finished.
  virtual Job& job(const Filling& batch, std::size_t stream) = 0;
  // Called when everything was read.
  virtual void finish(const Filling& /*batch*/) {}
  virtual bool finishing_is_work() const { return false; }
  // Called under a lock when the batch is handed out. `finished.fields` are those of `batch`.
  virtual void taken(const Filling& /*batch*/, Finished& /*finished*/) {}
  // For assemblers with their own readers, which `finish` waits for. After `interrupt`, a `finish`
  // that waits throws soon, until `moved` is called. `interrupt` must not wait.
  virtual void interrupt() {}
  // This rank's positions in the orders of the sets (see Schedule::positions_at) at which the next
  // batch begins and the last one ends. Called while no batch is being read.
  using Positions = std::vector<std::uint64_t>;
  virtual void moved(const Positions& /*first*/, const Positions& /*end*/) {}
  // The samples from `first` to `end` belong to other workers. Called by the thread that calls
  // `job`.
  virtual void pass(const Positions& /*first*/, const Positions& /*end*/) {}
  // Returns false if they could not be closed by the deadline.
  virtual bool close_readers(std::optional<ReadAhead::Clock::time_point> /*deadline*/) {
    return true;
  }

 protected:
  ~Assembler() = default;
};

// How many batches are read ahead by default: as many as keep a disk busy. `batch_bytes` is the
// size of a finished batch.
std::uint32_t usual_prefetch(std::uint64_t batch_size, std::uint64_t batch_bytes);

// All calls except `next` are thread-safe. Memory for batches is reserved from the budget, unless
// the caller passes it in.
class Pipeline final : BatchMaker, ReadAheadMemory::Owner {
 public:
  struct Options {
    std::optional<std::uint32_t> prefetch = {};  // see usual_prefetch
    std::uint32_t keep = 0;  // a batch of `next` stays valid until this many more were taken
    // The caller's memory for batches, a span for each field of each batch; see BatchMemory.
    std::vector<std::vector<std::span<std::byte>>> memory = {};
    bool lends = false;  // also reserve memory for one batch that the caller of `lend` holds
    Budget budget = {};
  };
  // Throws Error (kBudget) with the arithmetic. `assembler` must outlive it. `make_schedule` is
  // called twice: one schedule is for reading, one for `explain`.
  Pipeline(const Options& options, const std::function<Schedule()>& make_schedule,
           Assembler& assembler);
  ~Pipeline();

  struct Lent : Assembler::Finished {
    std::uint64_t step = 0, rows = 0;
    Loan loan;
  };
  // The next batch, or nullptr after the last. Options::keep determines how long it is valid. Not
  // thread-safe.
  const Lent* next();
  // The next batch, valid for the lifetime of its loan. The batch before it no longer counts.
  ReadAhead::Outcome lend(Lent& lent, ReadAhead::Clock::time_point deadline);

  std::uint64_t step() const;
  void seek(std::uint64_t step);
  // Seeks to the step that begins after this many samples. Throws Error (kInvalid) if none does.
  // `while_stopped` is called while nothing is being read, before Assembler::moved. If it throws,
  // the error is passed on, and the loader stays where it was.
  void seek_samples(std::uint64_t samples, const std::function<void()>& while_stopped = {});
  // Begins a loop over the loader. With StepOptions::steps and `restart`, it begins at step 0 even
  // if the last loop has not ended.
  void begin_loop(bool restart);
  std::uint64_t size() const { return steps_.number_of(steps_.loop_steps()); }
  int buffers() const { return static_cast<int>(slots_made_.load()); }
  LiveFigures figures() const { return ahead_->figures(); }
  std::uint32_t keep() const { return options_.keep; }
  const Steps& steps() const { return steps_; }
  const Schedule& schedule() const { return schedule_; }
  void explain(std::uint64_t step, const std::function<void(const Schedule::Sample&)>& use) const;

  bool owned_here() const { return ahead_->owned_here(); }
  // Returns false if it could not close by the deadline. This object and the assembler must then
  // not be destroyed.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {});

 private:
  // The part of a ReadAhead slot that is not in the memory of the pool.
  struct Slot {
    Reservation rows_share;
    std::vector<std::uint64_t> rows;
    Assembler::Filling filling;
  };

  void begin(std::size_t slot, std::uint64_t number) override;
  Job& prepare(std::size_t slot, std::uint64_t number) override {
    return prepare_stream(slot, number, 0);
  }
  Job& prepare_stream(std::size_t slot, std::uint64_t number, std::size_t stream) override;
  void finish(std::size_t slot, std::uint64_t number) override;

  std::uint64_t spare_bytes() override;
  void give_back(std::uint64_t bytes) override;

  void check_memory() const;
  std::uint64_t plan_limit() const;
  std::uint64_t plan_bytes() const;
  std::uint64_t most_pieces() const;
  std::uint64_t list_bytes() const;  // of a slot
  std::uint64_t slot_bytes() const;  // everything that is reserved for a slot
  std::size_t prefetch() const;
  std::size_t least_slots() const { return 1 + std::size_t{options_.keep}; }
  void make_slots();
  void make_first_slots(std::size_t least);
  void add_slot();
  void require_owner() const;
  ReadAhead::Use taking(Lent& lent);
  // `from`: see ReadAhead::seek.
  void move(std::uint64_t number, std::uint64_t end_step,
            const std::function<void()>& while_stopped = {},
            std::optional<std::uint64_t> from = {});
  void tell_moved(std::uint64_t step, std::uint64_t end_step);
  void pass_before(std::uint64_t step);
  void find_fields(std::byte* first, std::vector<std::byte*>& fields) const;

  const Options options_;
  Assembler& assembler_;
  Schedule schedule_;  // used by `begin`
  const Steps& steps_;
  const std::vector<std::uint64_t> field_bytes_;
  std::vector<std::uint64_t> field_offsets_;  // in a buffer of the pool
  std::uint64_t buffer_bytes_ = 0;
  Reservation plan_share_, second_plan_share_, lent_share_;
  std::vector<Slot> slots_;
  std::atomic<std::size_t> slots_made_ = 0;
  std::atomic<std::size_t> spare_slots_ = 0;  // that the budget may take back
  std::uint64_t first_step_ = 0;              // since the last move
  // The step after the last of the current loop. A worker's next step may be later than that.
  std::atomic<std::uint64_t> end_step_ = 0;
  std::shared_ptr<LendingPool> pool_;
  std::shared_ptr<ReadAhead> ahead_;  // its threads use all of the above, so ~Pipeline closes it

  mutable Mutex mutex_;
  mutable Schedule explaining_ GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<ExtraMemory>> kept_ GUARDED_BY(mutex_);  // of the last batch of `lend`

  // The batches that are kept valid for the caller of `next`.
  std::deque<Lent> held_;

  std::optional<ReadAheadMemory> read_ahead_memory_;  // the last member: it calls this object
};

}  // namespace evenkeel
