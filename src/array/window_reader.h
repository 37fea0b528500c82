// Windows of the order `blocks`, read ahead of the rows that are taken out of them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "array/impl.h"
#include "array/read_ahead.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "order/block_order.h"

namespace evenkeel {

// Where the samples of an order lie in an array. By default they are its rows. Crops of tokens are
// samples of several rows, each with the first row of the next one as its last.
struct SampleShape {
  std::uint64_t samples = 0;
  std::uint64_t first_row = 0;  // of the array: where the samples begin
  std::uint64_t rows = 1;       // from one sample to the next
  std::uint64_t overlap = 0;    // rows that a sample has besides, which are the next one's, too
  // Rows that an epoch leaves out before its first sample; empty: none. Called by several threads.
  std::function<std::uint64_t(std::uint64_t epoch)> phase = {};

  static SampleShape of_rows(const Layout& layout) { return {.samples = layout.rows}; }
  // The first row of a sample.
  std::uint64_t row(std::uint64_t epoch, std::uint64_t sample) const {
    return first_row + (phase ? phase(epoch) : 0) + sample * rows;
  }
};

// Positions of this rank, and windows, are counted on from epoch to epoch: the windows of an epoch
// follow those of the one before, so that reading ahead does not stop in between.
//
// Reads a rank's part of each window, block by block and in few large requests, into memory that is
// reserved when the reader is made: two parts, one that rows are taken from while the next is read.
// Blocks are read in place where the engine can. Several threads may take rows at once, if each
// position is taken or passed over once, and no thread takes rows of a window before rows of the
// window before the last are all taken or being taken. What is said of rows is true of samples.
class WindowReader final : public BatchMaker {
 public:
  // `order` is of kind kBlocks; its epoch is that of position 0. `taken` is how many of this rank's
  // positions are taken of an epoch; without it all are. Until `seek`, one epoch is read. Throws
  // Error (kBudget) with the arithmetic when two parts of a window do not fit, and kInvalid for an
  // order that makes no sense; nothing is read then.
  WindowReader(std::shared_ptr<Array::Impl> array, std::shared_ptr<Engine> engine,
               const Order& order, SampleShape shape, std::optional<std::uint64_t> taken = {});
  ~WindowReader();

  // Bytes that the reader of such an order takes from the budget.
  static std::uint64_t memory(const Array::Impl& array, const Engine& engine, const Order& order,
                              const SampleShape& shape);

  // Copies the rows of this rank's positions first, first + 1, ... to `out`, as many as `rows` has
  // entries, and their row numbers to `rows`. Throws what reading threw, and Error (kClosed) after
  // `interrupt`.
  void take(std::uint64_t first, std::span<std::uint64_t> rows, std::byte* out) EXCLUDES(mutex_);
  // The rows of these positions are not taken. Does not wait.
  void pass(std::uint64_t first, std::uint64_t end) EXCLUDES(mutex_);
  // The first row to be taken is that of `position`; nothing is read for positions from `end` on
  // but what windows before it hold. Ends an interruption. No thread may be in `take`.
  void seek(std::uint64_t position, std::uint64_t end) EXCLUDES(mutex_);
  std::uint64_t positions_of_epoch() const { return positions_; }
  // Makes a `take` that waits for the disk throw soon, and later ones until `seek`. From any
  // thread.
  void interrupt() { interrupted_ = true; }
  // Ends reading and gives the memory back. False: a thread still waits for the disk at the
  // deadline, so nothing that it uses may be destroyed. No thread may be in `take`.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {});

 private:
  // A run of a window and its place in memory.
  struct Placed {
    std::uint64_t first_place, start;
    const std::byte* data;
  };
  struct Slot {
    PageBuffer memory;
    std::vector<JobRun> runs;
    std::vector<Placed> placed;  // and one after the last
    // The run that holds place i * 2^step, so that finding the run of a place takes a step or two.
    std::vector<std::uint32_t> finder;
    unsigned step = 0;
    Job job;
  };
  static constexpr std::size_t kSlots = 2;

  // Bytes of a row of the order, without the overlap.
  static std::uint64_t stride(const Layout& layout, const SampleShape& shape) {
    return shape.rows * layout.row_bytes;
  }
  static std::uint64_t overhang(const Layout& layout, const Engine& engine, const Order& order,
                                const SampleShape& shape);
  static std::uint64_t part_bytes(const Layout& layout, const BlockOrder& order,
                                  const SampleShape& shape, std::uint64_t overhang);
  static std::uint64_t list_bytes(const BlockOrder& order);
  static std::uint64_t plan_bytes(const Array::Impl& array, const BlockOrder& order);

  [[noreturn]] void throw_too_large(const Order& order) const;
  Job& prepare(std::size_t slot, std::uint64_t number) override;
  // The number of the window that holds a position, and the positions at which that begins and
  // ends.
  std::uint64_t number_of(std::uint64_t position) const;
  std::uint64_t number_at_end(std::uint64_t end) const;
  std::uint64_t begin_of(std::uint64_t number) const;
  std::uint64_t end_of(std::uint64_t number) const;
  BlockOrder order_at(std::uint64_t epoch) const;
  void lay_out(Slot& slot, std::uint64_t epoch);
  void index(Slot& slot);
  // The slot that holds a window, which is read if it is not in memory yet.
  const Slot& wait_for(std::uint64_t window) EXCLUDES(mutex_);
  void took(std::uint64_t window, std::uint64_t rows) EXCLUDES(mutex_);
  void count_down(std::uint64_t window, std::uint64_t rows) REQUIRES(mutex_);
  void copy(const Slot& slot, std::span<std::uint64_t> rows, std::byte* out) const;

  const std::shared_ptr<Array::Impl> array_;
  const std::shared_ptr<Engine> engine_;
  const Order first_epoch_;
  const SampleShape shape_;
  const std::uint64_t stride_, sample_bytes_;
  const BlockOrder order_;                   // of the first epoch: its sizes are those of all
  const std::uint64_t positions_, windows_;  // that are taken of an epoch
  const std::uint64_t overhang_;             // room around each run, of both sides together; or 0
  Reservation lists_share_;
  std::vector<RowRun> scratch_;  // of `prepare`
  std::vector<Slot> slots_;
  std::atomic<bool> interrupted_ = false;

  // A window that rows are taken from, in slot window % kSlots.
  struct Held {
    bool here = false;
    std::uint64_t window = 0;
    std::uint64_t rows_left = 0;  // that nobody has taken; the window is given back after the last
  };
  Mutex mutex_;
  CondVar changed_;
  std::array<Held, kSlots> held_ GUARDED_BY(mutex_);
  std::uint64_t first_position_ GUARDED_BY(mutex_) = 0;  // rows before it are not taken
  // Rows of windows that have not come yet and are passed over.
  std::map<std::uint64_t, std::uint64_t> passed_ GUARDED_BY(mutex_);
  bool waiting_ GUARDED_BY(mutex_) = false;  // a thread waits for the next window
  std::optional<ReadAhead> ahead_;  // its thread uses all of the above: ~WindowReader closes it
};

}  // namespace evenkeel
