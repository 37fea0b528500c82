// From positions to batches: what all loaders have in common. A Schedule says which samples a batch
// has, an Assembler what to read for them and how to finish a batch. The pipeline has the steps,
// the reading ahead and the memory of batches.
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
#include "base/mutex.h"
#include "base/read_ahead_memory.h"
#include "loader/schedule.h"

namespace evenkeel {

// What is special about a loader. `add_slot` is called before all others; `job` one call at a time;
// `finish` one call at a time for each slot.
class Assembler {
 public:
  // A batch on its way.
  struct Filling {
    std::size_t slot = 0;
    std::uint64_t step = 0;
    std::span<const std::uint64_t> rows;  // of its samples, if wanted; see Schedule::Sample::row
    std::vector<SamplePiece> pieces;      // the samples, if wanted
    std::vector<std::byte*> fields;       // where the fields of the finished batch go
  };
  // A finished batch.
  struct Finished {
    std::vector<const std::byte*> fields;
    std::vector<std::uint64_t> sizes;               // in bytes; empty where all are as expected
    std::vector<std::shared_ptr<const void>> keep;  // memory besides the pool's
  };

  // The most bytes of each field of a finished batch: x and y, or one for each array.
  virtual std::vector<std::uint64_t> field_bytes() const = 0;
  // Memory for one more batch on its way, besides its fields. Throws Error (kBudget).
  virtual void add_slot(const Budget& budget) = 0;
  virtual std::uint64_t slot_bytes() const = 0;    // of that memory
  virtual void keep_slots(std::size_t count) = 0;  // and free those after them
  // The budget holds no batch. True: there is more room now, so try again.
  virtual bool make_room(std::uint64_t /*bytes*/) { return false; }
  // "32 x 1,024 tokens", for errors.
  virtual std::string describe_batch() const = 0;
  virtual std::size_t stream_count() const = 0;
  // False: streams have nothing to read, because `finish` takes rows from readers of its own.
  virtual bool streams_read() const { return true; }
  virtual bool wants_rows() const { return true; }
  virtual std::uint64_t reads_of_row() const { return 1; }  // at most
  virtual bool wants_pieces() const { return false; }
  // What the batches are read from. The engines live as long as this object.
  virtual std::vector<ReadStream> streams() = 0;
  // What a stream reads for a batch; the job lives until the batch is finished.
  virtual Job& job(const Filling& batch, std::size_t stream) = 0;
  // Everything was read.
  virtual void finish(const Filling& /*batch*/) {}
  virtual bool finishing_is_work() const { return false; }
  // The batch is handed out, with `fields` where Filling had them. Called under a lock.
  virtual void taken(const Filling& /*batch*/, Finished& /*finished*/) {}
  // For readers of its own, which `finish` waits for. `interrupt` makes a `finish` that waits throw
  // soon, until `moved`. Must not wait itself.
  virtual void interrupt() {}
  // This rank's positions in the orders of the sets (see Schedule::positions_at) at which the next
  // batch begins and the last one ends. Called when no batch is on its way.
  using Positions = std::vector<std::uint64_t>;
  virtual void moved(const Positions& /*first*/, const Positions& /*end*/) {}
  // The samples from `first` to `end` are other workers'. Called by the thread that calls `job`.
  virtual void pass(const Positions& /*first*/, const Positions& /*end*/) {}
  // False: not by the deadline.
  virtual bool close_readers(std::optional<ReadAhead::Clock::time_point> /*deadline*/) {
    return true;
  }

 protected:
  ~Assembler() = default;
};

// How many batches are read ahead where nothing else is asked for: as many as keep a disk busy.
// `batch_bytes` are those of a finished batch.
std::uint32_t usual_prefetch(std::uint64_t batch_size, std::uint64_t batch_bytes);

// Calls but `next` may come from several threads.
class Pipeline final : BatchMaker, ReadAheadMemory::Owner {
 public:
  struct Options {
    std::optional<std::uint32_t> prefetch = {};  // see usual_prefetch
    std::uint32_t keep = 0;  // a batch of `next` stays valid until so many more have been taken
    // Memory of the caller's for batches, each with a place for each field; see BatchMemory.
    std::vector<std::vector<std::span<std::byte>>> memory = {};
    bool lends = false;  // the budget also pays for one batch that the user of `lend` holds
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
  // The next batch, valid as long as `keep` says; nullptr after the last. One thread at a time.
  const Lent* next();
  // The next batch, valid as long as its loan lives.
  ReadAhead::Outcome lend(Lent& lent, ReadAhead::Clock::time_point deadline);

  std::uint64_t step() const;
  void seek(std::uint64_t step);
  // To the step that begins after so many samples. Throws Error (kInvalid) when none does.
  // `while_stopped` is called when nothing is read, before Assembler::moved; what it throws is
  // thrown, and the loader stays where it was.
  void seek_samples(std::uint64_t samples, const std::function<void()>& while_stopped = {});
  // A loop over the loader begins. `anew`: with `steps`, at step 0 also if it has not ended.
  void begin_loop(bool anew);
  std::uint64_t size() const { return steps_.number_of(steps_.loop_steps()); }
  int buffers() const { return static_cast<int>(slots_made_.load()); }
  LiveFigures figures() const { return ahead_->figures(); }
  std::uint32_t keep() const { return options_.keep; }
  const Steps& steps() const { return steps_; }
  const Schedule& schedule() const { return schedule_; }
  void explain(std::uint64_t step, const std::function<void(const Schedule::Sample&)>& use) const;

  bool owned_here() const { return ahead_->owned_here(); }
  // False: not by the deadline, so this object and the assembler must not be destroyed.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {});

 private:
  // What a slot of ReadAhead has besides the memory of the pool.
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
  std::uint64_t slot_bytes() const;  // all that the budget pays for a slot
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
  std::vector<std::uint64_t> field_offsets_;  // in a buffer of the library's
  std::uint64_t buffer_bytes_ = 0;
  Reservation plan_share_, second_plan_share_, lent_share_;
  std::vector<Slot> slots_;
  std::atomic<std::size_t> slots_made_ = 0;
  std::atomic<std::size_t> spare_slots_ = 0;  // that the budget may take back
  std::uint64_t first_step_ = 0;              // since the last move
  std::shared_ptr<LendingPool> pool_;
  std::shared_ptr<ReadAhead> ahead_;  // its threads use all of the above: ~Pipeline closes it

  mutable Mutex mutex_;
  mutable Schedule explaining_ GUARDED_BY(mutex_);

  // Of the user of `next`.
  std::deque<Lent> held_;

  std::optional<ReadAheadMemory> read_ahead_memory_;  // the last: it calls this object
};

}  // namespace evenkeel
