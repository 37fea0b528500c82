// Reads windows of the order `blocks` ahead of the rows that are taken from them.
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

// Where the samples of an order are in an array. By default they are its rows. Crops of tokens are
// samples of several rows; the last row of each is also the first row of the next.
struct SampleShape {
  std::uint64_t samples = 0;
  std::uint64_t first_row = 0;  // row of the array where the samples begin
  std::uint64_t rows = 1;       // from one sample to the next
  std::uint64_t overlap = 0;    // further rows of a sample that also belong to the next
  // Rows that an epoch leaves out before its first sample; empty: none. Called by several threads.
  std::function<std::uint64_t(std::uint64_t epoch)> phase = {};

  static SampleShape of_rows(const Layout& layout) { return {.samples = layout.rows}; }
  // The first row of a sample.
  std::uint64_t row(std::uint64_t epoch, std::uint64_t sample) const {
    return first_row + (phase ? phase(epoch) : 0) + sample * rows;
  }
};

// The runs of a window, each with its address in memory.
struct PlacedRuns {
  struct Placed {
    std::uint64_t first_place, start;
    const std::byte* data;
  };
  std::vector<Placed> placed;  // ends with a sentinel
  // finder[i] is the run that holds place i * 2^step, so that finding the run of a place takes a
  // step or two.
  std::vector<std::uint32_t> finder;
  unsigned step = 0;

  static std::uint64_t memory(std::uint64_t runs) {
    return (runs + 1) * (sizeof(Placed) + 2 * sizeof(std::uint32_t));
  }
  void reserve(std::uint64_t runs);
  void index();  // call after all runs are placed
  const Placed* find(std::uint64_t place) const {
    const Placed* run = &placed[finder[place >> step]];
    while (run[1].first_place <= place) ++run;
    return run;
  }
};

// The room around each run that a direct read into its place needs.
struct RunRoom {
  std::uint64_t alignment = 0;  // of the engine. 0: no room, the runs follow each other
  std::uint64_t unit = 0;       // each read begins at a multiple of this many bytes in memory

  // The most bytes around a run, both sides together.
  std::uint64_t overhang() const { return alignment == 0 ? 0 : alignment + unit; }
  explicit operator bool() const { return alignment > 0; }
};

// Places runs of rows one after the other in memory, with this room.
struct RunPlacer {
  const Layout& layout;
  const RunRoom room;
  std::uint64_t end = 0;  // bytes used so far

  // Returns the offset of the first byte of the next run. A run may be empty.
  std::uint64_t place(std::uint64_t row, std::uint64_t rows);
};

// Knows which windows are in memory, and how many of their rows have not been taken. Derived
// classes define what a window holds and which positions it has.
//
// Positions of this rank and windows are numbered across epochs: the windows of an epoch follow
// those of the previous one, so that reading ahead does not stop in between. Several threads may
// take rows at once if each position is taken or passed exactly once, and no thread takes rows of
// window n before all rows of window n-2 are taken or being taken. "Rows" means samples here.
class WindowHolder : public BatchMaker {
 public:
  virtual ~WindowHolder() = default;

  // Says that the rows at these positions will not be taken. Does not wait.
  void pass(std::uint64_t first, std::uint64_t end) EXCLUDES(mutex_);
  // Continues at `position`. Reads no windows that begin at `end` or later. Ends an interruption.
  // No thread may be in `take`.
  void seek(std::uint64_t position, std::uint64_t end) EXCLUDES(mutex_);
  // Makes a `take` that waits for the disk throw soon, and also later calls until `seek`. May be
  // called from any thread.
  void interrupt() { interrupted_ = true; }
  // Stops reading and frees the memory. Returns false if a thread still waits for the disk at the
  // deadline; then nothing that it uses may be destroyed. No thread may be in `take`.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {});

 protected:
  static constexpr std::size_t kSlots = 2;

  WindowHolder() = default;
  // `limit` sizes the plans; see RowFeed::memory. Windows from `end` on are not read until `seek`.
  void start(std::vector<ReadStream> streams, std::uint64_t limit, std::uint64_t end);
  virtual void free_memory() = 0;
  // The number of the window that holds a position, and the positions at which a window begins and
  // ends.
  virtual std::uint64_t number_of(std::uint64_t position) const = 0;
  virtual std::uint64_t begin_of(std::uint64_t number) const = 0;
  virtual std::uint64_t end_of(std::uint64_t number) const = 0;
  // Calls `copy(slot, first, count)` for positions first, first + 1, ..., once for each window. The
  // window is in memory, in that slot, during the call.
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
  // Waits until a window is in memory and returns its slot.
  std::size_t wait_for(std::uint64_t window) EXCLUDES(mutex_);
  void took(std::uint64_t window, std::uint64_t rows) EXCLUDES(mutex_);
  void count_down(std::uint64_t window, std::uint64_t rows) REQUIRES(mutex_);

  std::atomic<bool> interrupted_ = false;

  // A window that rows are taken from, in slot window % kSlots.
  struct LoadedWindow {
    bool present = false;
    std::uint64_t window = 0;
    std::uint64_t rows_left = 0;  // not taken yet; the window is given back after the last
  };
  Mutex mutex_;
  CondVar changed_;
  std::array<LoadedWindow, kSlots> loaded_ GUARDED_BY(mutex_);
  std::uint64_t first_position_ GUARDED_BY(mutex_) = 0;  // rows before it will not be taken
  // How many rows to pass of windows that are not in memory yet.
  std::map<std::uint64_t, std::uint64_t> passed_ GUARDED_BY(mutex_);
  bool waiting_ GUARDED_BY(mutex_) = false;  // a thread waits for the next window
  // Its threads use all of the above and the derived class, whose destructor must close it.
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
  // Returns this rank's part of a window as runs of rows.
  void runs_of(std::uint64_t number, std::vector<RowRun>& runs) const;
  // Calls `copy(slot, places)` for the rows at positions first, first + 1, ..., once for each
  // window. `places` is the part of `rows` with their places in the rank's part of the window.
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
  const BlockOrder order_;                   // of the first epoch; all epochs have the same sizes
  const std::uint64_t positions_, windows_;  // taken in an epoch
};

// Reads a rank's part of each window, block by block in a few large requests, into memory that is
// reserved by the constructor. There are two buffers: rows are taken from one while the other is
// filled. Blocks are read in place if the engine can do that.
class WindowReader final : public BlockWindows {
 public:
  // `order` has kind kBlocks; its epoch is the epoch of position 0. Until `seek`, one epoch is
  // read. Throws Error, before anything is read: kBudget with the arithmetic if two parts of a
  // window do not fit, and kInvalid for an invalid order.
  WindowReader(std::shared_ptr<Array::Impl> array, std::shared_ptr<Engine> engine,
               const Order& order, SampleShape shape, const Epochs& epochs = {});
  ~WindowReader() override { close(); }

  // Bytes that a reader with these arguments takes from the budget.
  static std::uint64_t memory(const Array::Impl& array, const Engine& engine, const Order& order,
                              const SampleShape& shape);
  // The room that each block needs to be read in place. None if that would be large compared with
  // the block: blocks then follow each other, and the engine reads into its own memory.
  static RunRoom room(std::uint64_t block_bytes, const Engine& engine);

  // Copies the rows at this rank's positions first, first + 1, ... to `out`, as many as `rows` has
  // entries, and their row numbers to `rows`. Throws the error of the read, or Error (kClosed)
  // after `interrupt`.
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
  static RunRoom room(const Layout& layout, const Engine& engine, const Order& order,
                      const SampleShape& shape);
  static std::uint64_t part_bytes(const Layout& layout, const BlockOrder& order,
                                  const SampleShape& shape, const RunRoom& room);
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
  const RunRoom room_;
  Reservation lists_share_;
  std::vector<RowRun> scratch_;  // used by `prepare`
  std::vector<Slot> slots_;
};

}  // namespace evenkeel
