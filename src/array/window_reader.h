// Windows of the order `blocks`, read ahead of the rows that are taken out of them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
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

// The runs of a window, each with its place in memory.
struct PlacedRuns {
  struct Placed {
    std::uint64_t first_place, start;
    const std::byte* data;
  };
  std::vector<Placed> placed;  // and one after the last
  // The run that holds place i * 2^step, so that finding the run of a place takes a step or two.
  std::vector<std::uint32_t> finder;
  unsigned step = 0;

  static std::uint64_t memory(std::uint64_t runs) {
    return (runs + 1) * (sizeof(Placed) + 2 * sizeof(std::uint32_t));
  }
  void reserve(std::uint64_t runs);
  void index();  // after all were placed
  const Placed* find(std::uint64_t place) const {
    const Placed* run = &placed[finder[place >> step]];
    while (run[1].first_place <= place) ++run;
    return run;
  }
};

// Lays runs of rows side by side in memory. Where `alignment` is not 0, each run is as far from
// alignment in memory as it is in its file, with room for alignment on both sides: the disk can
// then write it where it belongs.
struct RunPlacer {
  const Layout& layout;
  std::uint64_t alignment = 0;
  std::uint64_t end = 0;  // bytes that are taken

  // The place of the next run's first byte. A run may be empty.
  std::uint64_t place(std::uint64_t row, std::uint64_t rows);
};

// Which windows are in memory, and how many of their rows nobody has taken. What a window holds,
// and which positions it has, is the matter of the classes derived from it.
//
// Positions of this rank, and windows, are counted on from epoch to epoch: the windows of an epoch
// follow those of the one before, so that reading ahead does not stop in between. Several threads
// may take rows at once, if each position is taken or passed over once, and no thread takes rows of
// a window before rows of the window before the last are all taken or being taken. What is said of
// rows is true of samples.
class WindowHolder : public BatchMaker {
 public:
  virtual ~WindowHolder() = default;

  // The rows of these positions are not taken. Does not wait.
  void pass(std::uint64_t first, std::uint64_t end) EXCLUDES(mutex_);
  // The first row to be taken is that of `position`; nothing is read for positions from `end` on
  // but what windows before it hold. Ends an interruption. No thread may be in `take`.
  void seek(std::uint64_t position, std::uint64_t end) EXCLUDES(mutex_);
  // Makes a `take` that waits for the disk throw soon, and later ones until `seek`. From any
  // thread.
  void interrupt() { interrupted_ = true; }
  // Ends reading and gives the memory back. False: a thread still waits for the disk at the
  // deadline, so nothing that it uses may be destroyed. No thread may be in `take`.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {});

 protected:
  static constexpr std::size_t kSlots = 2;

  WindowHolder() = default;
  // `limit` sizes the plans; see RowFeed::memory. Windows from `end` on are not read until `seek`.
  void start(std::vector<ReadStream> streams, std::uint64_t limit, std::uint64_t end);
  virtual void free_memory() = 0;
  // The number of the window that holds a position, and the positions at which that begins and
  // ends.
  virtual std::uint64_t number_of(std::uint64_t position) const = 0;
  virtual std::uint64_t begin_of(std::uint64_t number) const = 0;
  virtual std::uint64_t end_of(std::uint64_t number) const = 0;
  // Calls `copy(slot, first, count)` for positions first, first + 1, ... in as many parts as there
  // are windows; each part is in memory, in that slot, during the call.
  template <class Copy>
  void take_parts(std::uint64_t first, std::uint64_t count, const Copy& copy) EXCLUDES(mutex_) {
    while (count > 0) {
      const std::uint64_t window = number_of(first);
      const std::uint64_t now = std::min(count, end_of(window) - first);
      copy(wait_for(window), first, now);
      took(window, now);
      first += now;
      count -= now;
    }
  }

 private:
  std::uint64_t number_at_end(std::uint64_t end) const;
  // The slot that holds a window, which is read if it is not in memory yet.
  std::size_t wait_for(std::uint64_t window) EXCLUDES(mutex_);
  void took(std::uint64_t window, std::uint64_t rows) EXCLUDES(mutex_);
  void count_down(std::uint64_t window, std::uint64_t rows) REQUIRES(mutex_);

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
  // Its threads use all of the above and what is derived, whose destructor closes it.
  std::optional<ReadAhead> ahead_;
};

// Windows of the order `blocks`.
class BlockWindows : public WindowHolder {
 public:
  struct Epochs {
    // How many of this rank's positions are taken of an epoch; without it all are.
    std::optional<std::uint64_t> taken = {};
    std::uint64_t repeat = 0;  // epochs after which the first one comes again; 0: never
  };
  std::uint64_t positions_of_epoch() const { return positions_; }

 protected:
  // See WindowReader for `order`.
  BlockWindows(const Order& order, std::uint64_t samples, const Epochs& epochs);
  void start(std::vector<ReadStream> streams, std::uint64_t limit) {
    WindowHolder::start(std::move(streams), limit, windows_);
  }

  const BlockOrder& order() const { return order_; }
  std::uint64_t epoch_of(std::uint64_t window) const { return epoch_at(window / windows_); }
  // This rank's part of a window, as runs of rows.
  void runs_of(std::uint64_t number, std::vector<RowRun>& runs) const;
  // Calls `copy(slot, places)` for the rows of positions first, first + 1, ... in as many parts as
  // there are windows; their places in the rank's part of the window are in `rows`.
  template <class Copy>
  void take_places(std::uint64_t first, std::span<std::uint64_t> rows, const Copy& copy) {
    take_parts(first, rows.size(),
               [&](std::size_t slot, std::uint64_t position, std::uint64_t count) {
                 const auto now = rows.first(count);
                 order_at(position / positions_).fill_places(position % positions_, now);
                 copy(slot, now);
                 rows = rows.subspan(count);
               });
  }

 private:
  std::uint64_t number_of(std::uint64_t position) const override;
  std::uint64_t begin_of(std::uint64_t number) const override;
  std::uint64_t end_of(std::uint64_t number) const override;
  std::uint64_t epoch_at(std::uint64_t number) const {
    return first_epoch_.epoch + (repeat_ > 0 ? number % repeat_ : number);
  }
  BlockOrder order_at(std::uint64_t number) const;

  const Order first_epoch_;
  const std::uint64_t repeat_;
  const std::uint64_t samples_;
  const BlockOrder order_;                   // of the first epoch: its sizes are those of all
  const std::uint64_t positions_, windows_;  // that are taken of an epoch
};

// Reads a rank's part of each window, block by block and in few large requests, into memory that is
// reserved when the reader is made: two parts, one that rows are taken from while the next is read.
// Blocks are read in place where the engine can.
class WindowReader final : public BlockWindows {
 public:
  // `order` is of kind kBlocks; its epoch is that of position 0. Until `seek`, one epoch is read.
  // Throws Error (kBudget) with the arithmetic when two parts of a window do not fit, and kInvalid
  // for an order that makes no sense; nothing is read then.
  WindowReader(std::shared_ptr<Array::Impl> array, std::shared_ptr<Engine> engine,
               const Order& order, SampleShape shape, const Epochs& epochs = {});
  ~WindowReader() override { close(); }

  // Bytes that the reader of such an order takes from the budget.
  static std::uint64_t memory(const Array::Impl& array, const Engine& engine, const Order& order,
                              const SampleShape& shape);
  // The room that each block takes around it to be read in place; 0 where that would be much beside
  // the block: blocks then lie one after the other, and the engine reads into memory of its own.
  static std::uint64_t overhang(std::uint64_t block_bytes, const Engine& engine);

  // Copies the rows of this rank's positions first, first + 1, ... to `out`, as many as `rows` has
  // entries, and their row numbers to `rows`. Throws what reading threw, and Error (kClosed) after
  // `interrupt`.
  void take(std::uint64_t first, std::span<std::uint64_t> rows, std::byte* out);

 private:
  struct Slot {
    PageBuffer memory;
    std::vector<JobRun> runs;
    PlacedRuns placed;
    Job job;
  };

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
  void lay_out(Slot& slot, std::uint64_t epoch);
  void free_memory() override;
  void copy(const Slot& slot, std::span<std::uint64_t> rows, std::byte* out) const;

  const std::shared_ptr<Array::Impl> array_;
  const std::shared_ptr<Engine> engine_;
  const SampleShape shape_;
  const std::uint64_t stride_, sample_bytes_;
  const std::uint64_t overhang_;  // room around each run, of both sides together; or 0
  Reservation lists_share_;
  std::vector<RowRun> scratch_;  // of `prepare`
  std::vector<Slot> slots_;
};

}  // namespace evenkeel
