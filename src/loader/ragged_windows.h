// Windows of the order `blocks` for rows of different lengths.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "array/window_reader.h"

namespace evenkeel {

// The arrays of a field: row i is elements offsets[i] .. offsets[i+1]-1 of each array of values.
struct RaggedArrays {
  using ArrayPointer = std::shared_ptr<Array::Impl>;
  ArrayPointer offsets;
  std::vector<ArrayPointer> values;  // one or two
  std::uint64_t mean = 0;            // values per row

  std::uint64_t rows() const { return offsets->layout.lists(); }
  // The batch that has the offsets of a row. If offsets do not come in batches, it has all offsets.
  OffsetBatch batch_of(std::uint64_t row) const;
};

// A row in a window: its values in each array.
struct RaggedRow {
  std::array<const std::byte*, 2> data;
  std::uint64_t count = 0;
};

// Like WindowReader, but reads the offsets of a rank's part of each window first, and then all
// values of a block at once. The memory is for rows of the usual length. A window of longer rows
// takes more from the budget and keeps it.
class RaggedWindowReader final : public BlockWindows {
 public:
  // See WindowReader.
  RaggedWindowReader(const RaggedArrays& arrays, const Order& order, std::uint64_t taken);
  ~RaggedWindowReader() override { close(); }

  // Calls `use` with the rows at this rank's positions first, first + 1, ..., once for each window.
  // The rows are valid during the call. `places` is scratch memory; its size is the number of rows.
  template <class Use>
  void take(std::uint64_t first, std::span<std::uint64_t> places, const Use& use) {
    take_places(first, places, [&](std::size_t slot, std::span<const std::uint64_t> now) {
      use(now.size(), [&](std::size_t i) { return row_at(slots_[slot], now[i]); });
    });
  }

 private:
  struct Values {
    PageBuffer memory;
    std::vector<JobRun> runs;           // without empty runs
    std::vector<std::uint64_t> places;  // offsets of all runs in `memory`
    Job job;
  };
  struct Slot {
    PageBuffer offsets;  // as stored: each run has one more than rows
    PlacedRuns placed;   // the offsets of each run
    std::vector<JobRun> runs;
    std::vector<OffsetBatch> batches;  // of each run; empty if offsets do not come in batches
    Job job;
    bool known = false;  // the offsets were checked
    std::array<Values, 2> values;
  };

  Job& prepare(std::size_t slot, std::uint64_t number) override {
    return prepare_stream(slot, number, 0);
  }
  Job& prepare_stream(std::size_t slot, std::uint64_t number, std::size_t stream) override;
  void free_memory() override;
  void place_offsets(Slot& slot);
  void check_offsets(const Slot& slot) const;
  void place_values(Slot& slot, std::size_t which);
  void reserve();
  std::uint64_t part_bytes(std::size_t which) const;
  std::uint64_t most_runs() const;
  RaggedRow row_at(const Slot& slot, std::uint64_t place) const;

  const RaggedArrays arrays_;
  std::vector<std::shared_ptr<Engine>> engines_;  // of the offsets, then of the values
  std::vector<RunRoom> rooms_;                    // of the values; see WindowReader
  Reservation lists_share_;
  std::vector<RowRun> scratch_;  // for `prepare_stream`
  std::vector<Slot> slots_;
};

// The offset stored at `data`. A negative offset becomes a number larger than any file.
std::uint64_t number_at(DType dtype, const std::byte* data);
// Throws Error (kFormat) unless begin .. end-1, the offsets of `row`, lie within `most` values.
void require_bounds(const Layout& offsets, std::uint64_t row, std::uint64_t begin,
                    std::uint64_t end, std::uint64_t most);

}  // namespace evenkeel
