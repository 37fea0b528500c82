// A loader field with rows of different lengths. It is read in two stages, offsets first.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "array/impl.h"
#include "array/row_feed.h"
#include "base/memory.h"
#include "evenkeel/loader.h"
#include "loader/pipeline.h"
#include "loader/ragged_windows.h"

namespace evenkeel {

// Row i is elements offsets[i] .. offsets[i+1]-1 of each array of values. A batch has values and
// offsets that begin at 0, or, for a sparse matrix, dense rows. Offsets are read when they are
// needed. Each slot is used by one thread at a time.
class RaggedField {
 public:
  using ArrayPointer = RaggedArrays::ArrayPointer;
  // `values` is one array, or the data and the indices of a sparse matrix with `columns` columns.
  // Throws Error (kInvalid) for arrays that do not fit together, and for offsets beyond the values.
  RaggedField(ArrayPointer offsets, std::vector<ArrayPointer> values, std::uint64_t columns,
              bool dense);

  std::uint64_t rows() const { return arrays_.rows(); }
  // The arrays to read: first the offsets, then the values.
  std::size_t streams() const { return 1 + arrays_.values.size(); }
  const ArrayPointer& array(std::size_t stream) const {
    return stream == 0 ? arrays_.offsets : arrays_.values[stream - 1];
  }
  const RaggedArrays& arrays() const { return arrays_; }
  std::string fingerprint() const;

  struct Output {
    DType dtype;
    std::uint64_t row_bytes = 0;  // 0: rows have different lengths
    std::uint64_t bytes = 0;      // enough for most batches
  };
  // Throws Error (kInvalid) if the size of a batch overflows.
  std::vector<Output> outputs(std::uint64_t batch_size) const;

  std::uint64_t slot_bytes(std::uint64_t batch_size) const;
  void add_slot(const Budget& budget, std::uint64_t batch_size);
  void keep_slots(std::size_t count) { slots_.resize(std::min(count, slots_.size())); }

  // What a stream reads for these rows. A batch with more values than `out` has room for gets its
  // own memory from the budget. Throws Error (kBudget) if that does not fit, and kFormat if offsets
  // decrease or exceed the number of values.
  Job& job(std::size_t slot, std::size_t stream, std::span<const std::uint64_t> rows,
           std::span<std::byte* const> out);
  // Instead of reading: after `begin`, `take` copies rows out of windows and appends them,
  // beginning with position `first`. `places` is scratch memory; its size is the number of rows.
  void begin(std::size_t slot, std::span<std::byte* const> out);
  void take(std::size_t slot, RaggedWindowReader& windows, std::uint64_t first,
            std::span<std::uint64_t> places);
  void finish(std::size_t slot, std::span<const std::uint64_t> rows,
              std::span<std::byte* const> out);

  // A finished output. `keep` owns its memory if that does not belong to the batch.
  struct Finished {
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    std::shared_ptr<ExtraMemory> keep;
  };
  Finished finished(std::size_t slot, std::size_t output, std::span<const std::uint64_t> rows,
                    std::byte* out);

 private:
  struct Values {
    PageBuffer staging;  // for dense batches
    std::shared_ptr<ExtraMemory> own;
    std::byte* data = nullptr;
    std::uint64_t room = 0;  // bytes at `data`
    std::vector<JobRun> runs;
    Job job;
  };
  struct Slot {
    Reservation lists_share;
    PageBuffer offsets;  // as stored: two for each row
    Job job;
    std::vector<std::uint64_t> places;  // of the rows' offsets, if offsets come in batches
    bool known = false;                 // `begins` and `ends` are those of this batch
    std::vector<std::uint64_t> begins, ends;
    std::uint64_t total = 0;
    std::uint64_t taken = 0;  // values that `take` has copied
    std::array<Values, 2> values;
    Budget budget;
  };

  std::uint64_t usual_values(std::uint64_t batch_size) const;
  std::uint64_t item_bytes(std::size_t values) const {
    return arrays_.values[values]->layout.row_bytes;
  }
  void begin_values(Slot& slot, std::size_t which, std::byte* out) const;
  void find_bounds(Slot& slot, std::span<const std::uint64_t> rows) const;
  void make_room(Slot& slot, std::size_t which, std::uint64_t bytes) const;
  void check_columns(const Slot& slot) const;
  void densify(const Slot& slot, std::byte* out) const;

  RaggedArrays arrays_;
  const std::uint64_t columns_;
  const bool dense_;
  std::uint64_t batch_size_ = 0;
  std::deque<Slot> slots_;
};

}  // namespace evenkeel
