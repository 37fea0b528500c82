// Training batches of rows: from one array, or from several that belong together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/array.h"
#include "evenkeel/compiler.h"
#include "evenkeel/mixture.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// For several loaders that share the steps of one rank, as workers of a DataLoader do: this one
// takes steps phase, phase + stride, phase + 2 * stride, ...
struct LoaderWorkers {
  std::uint64_t stride = 1, phase = 0;
};

// What the arrays of a loader have read, and how its batches came.
struct LoaderStats : ArrayStats {
  std::uint64_t batches = 0;        // handed out
  std::uint64_t batch_wait_ns = 0;  // the program waited for them: 0 where reading keeps up
};

// The iterator of a loader, whose `next` gives a pointer to the next batch, or nullptr at the end.
template <class Loader, class Batch>
class BatchIterator {
 public:
  using iterator_concept = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  BatchIterator() = default;
  explicit BatchIterator(Loader* loader) : loader_(loader), batch_(loader->next()) {}
  const Batch& operator*() const { return *batch_; }
  const Batch* operator->() const { return batch_; }
  BatchIterator& operator++() {
    batch_ = loader_->next();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const BatchIterator& it, std::default_sentinel_t) { return !it.batch_; }

 private:
  Loader* loader_ = nullptr;
  const Batch* batch_ = nullptr;
};

OrderKind parse_order(std::string_view name);  // "sequential", "shuffled", "random", "blocks"
std::string_view order_name(OrderKind order);

struct RowLoaderOptions {
  std::uint64_t batch_size = 1;  // rows of a batch of this rank
  OrderKind order = OrderKind::kShuffled;
  std::uint64_t seed = 0;
  // Of kBlocks, in rows of all arrays together. A number that is 0 is chosen from the budget (see
  // choose_blocks); `blocks()` says which. They are part of a state: a loader that loads one takes
  // them from there.
  BlockOptions blocks = {0, 0, 0};
  // This process among `world`: together they take world * batch_size rows a step.
  std::uint64_t rank = 0, world = 1;
  // Batches read ahead. Fewer where the budget does not hold them; 0 reads when asked. By default
  // 4, and up to 16 where batches are so small that 4 of them do not keep a disk busy.
  std::optional<std::uint32_t> prefetch = {};
  // A loop over the loader ends after `steps` batches or after `epochs` epochs; at most one of
  // them. Without either it ends after one epoch, or, with kRandom and with mixtures, which have no
  // epochs, it does not end. A new loop begins at step 0 with `steps` (the same batches each time,
  // as validation wants), and goes on with the epochs that follow otherwise.
  std::uint64_t steps = 0, epochs = 0;
  // Of several sets: weights that change, and how often a set may come.
  MixtureOptions mixture = {};
  // What becomes of an epoch's last rows if they are less than a step. False: they make a last,
  // short step, divided evenly among the ranks; with fewer rows than ranks some batches are empty.
  // True: they are left out, and other rows in the next epoch.
  bool drop_last = false;
  LoaderWorkers workers = {};

  // For copies to a device that are still under way when the next batch is asked for.
  struct Buffers {
    // A batch stays valid until so many more have been taken. 0: until the next call of next().
    std::uint32_t keep = 0;
    // If not empty, batches are laid here instead of in memory of the library's: for each of at
    // least 1 + keep batches a place for each field, as large as batch_size rows. They do not count
    // against the budget.
    std::vector<std::vector<std::span<std::byte>>> memory = {};
  };
  Buffers buffers = {};
};

// Rows of one or several arrays that belong together, in memory of the loader's. An array gives one
// field, rows of different lengths (LoaderField::ragged, csr) several, in the order of the arrays.
class RowBatch {
 public:
  std::uint64_t step() const { return step_; }
  std::uint64_t rows() const { return rows_; }  // less than batch_size in a last, short step
  std::size_t fields() const { return fields_.size(); }
  DType dtype(std::size_t field = 0) const { return fields_.at(field).dtype; }
  // Row-major, in the byte order of this machine.
  std::span<const std::byte> bytes(std::size_t field = 0) const {
    return {fields_.at(field).data, fields_.at(field).bytes};
  }
  // Throws Error (kInvalid) when T is not the dtype of the field. Values and offsets of rows of
  // different lengths come as rows of one number.
  template <class T>
  Rows<T> as(std::size_t field = 0) const {
    require(field, DType::of<T>());
    const Field& one = fields_[field];
    const std::uint64_t row_bytes = one.row_bytes > 0 ? one.row_bytes : sizeof(T);
    return {reinterpret_cast<const T*>(one.data), one.bytes / row_bytes, row_bytes / sizeof(T)};
  }

 private:
  friend class Loader;
  struct Field {
    DType dtype;
    std::uint64_t row_bytes = 0;  // 0: rows differ
    const std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };
  void require(std::size_t field, DType wanted) const;

  std::uint64_t step_ = 0, rows_ = 0;
  std::vector<Field> fields_;
};

// Where a loader stands and which data that belongs to. Small; text() is one line.
struct RowLoaderState {
  std::uint64_t samples =
      0;  // taken so far by all ranks together, with those left out by drop_last
  std::uint64_t seed = 0;
  OrderKind order = OrderKind::kShuffled;
  BlockOptions blocks = {0, 0, 0};  // of kBlocks
  std::string data;                 // fingerprints of the arrays, and the weights of a mixture

  std::string text() const;
  static RowLoaderState parse(const std::string& text);
  friend bool operator==(const RowLoaderState&, const RowLoaderState&) = default;
};

// Where a row of a batch comes from.
struct RowOrigin {
  std::uint64_t sample = 0;  // position in the global order
  std::size_t set = 0;       // which data set of a mixture
  std::uint64_t epoch = 0;   // of that set; 0 with kRandom
  std::uint64_t row = 0;     // of that set's arrays
  std::size_t stage = 0;     // of a mixture that changes; see MixtureOptions
};

// What a loader reads rows from. It shares the files of the arrays and stays good after they are
// closed.
class LoaderField {
 public:
  LoaderField(const Array& array);  // NOLINT(google-explicit-constructor): arrays are fields

  // Row i is values[offsets[i]] .. values[offsets[i+1]-1]; there is one row fewer than offsets. A
  // batch has two fields: the values of its rows one after the other, and rows() + 1 offsets into
  // them (int64, from 0 on). Offsets are read as they are needed, and checked then: Error (kFormat)
  // when they decrease or leave the values.
  static LoaderField ragged(const Array& values, const Array& offsets);
  // A sparse matrix by rows. A batch has three fields: data, indices and indptr (int64); or, with
  // `dense`, one: rows of `columns` numbers.
  static LoaderField csr(const Array& data, const Array& indices, const Array& indptr,
                         std::uint64_t columns, bool dense = false);

 private:
  friend class Loader;
  std::uint64_t rows() const;
  std::uint64_t row_bytes() const;
  const Budget& budget() const;  // of rows of different lengths, that of their values

  std::shared_ptr<Array::Impl> array_;                // the rows, or the offsets
  std::vector<std::shared_ptr<Array::Impl>> values_;  // of rows of different lengths
  std::uint64_t columns_ = 0;
  bool dense_ = false;
};

struct WeightedRows {
  std::vector<LoaderField> fields;
  double weight = 1;  // share of the rows, relative to the other sets'; see WeightedTokens
};

// Batches of rows: every batch is a pure function of (data, order, seed, step, rank, world). With
// the same world * batch_size, the batches of all ranks at a step are the same rows for every
// world. With kBlocks two windows of blocks are held for each set of arrays that are not mapped,
// world must divide the streams, and each of several workers reads all windows. Batches are read
// ahead by threads of the library's own, one for each array, inside the budget of the first array;
// windows are paid for by the budget of their array. One thread at a time, but for `close`, which
// may come from any; not to be used in a child of fork. Moves, does not copy.
class Loader {
 public:
  using Iterator = BatchIterator<Loader, RowBatch>;

  // Arrays that belong together have the same number of rows. Throws Error (kInvalid) with the
  // numbers before anything is read, and kBudget when not even one batch fits.
  Loader(const Array& array, RowLoaderOptions options);
  Loader(std::vector<LoaderField> fields, RowLoaderOptions options);
  // The sets of a mixture have the same fields: as many, of the same dtype and row shape, and of
  // rows of one length.
  Loader(std::vector<WeightedRows> mixture, RowLoaderOptions options);
  // The next batch, or nullptr after the last. Throws what reading it threw, with the path and the
  // offset; Error (kClosed) after `close`, also if it was waiting already.
  const RowBatch* next();
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  std::uint64_t step() const;  // of the batch that next() gives next
  // To that step, or with a stride to the first of its own steps from there on. O(1). Throws Error
  // (kInvalid) for a step whose rows cannot be counted in 63 bits.
  void seek(std::uint64_t step);
  std::uint64_t size() const;  // batches of one loop; 0 when it does not end
  // Of all ranks together; 0 without epochs, as of mixtures.
  std::uint64_t epoch_rows() const;
  BlockOptions blocks() const;  // in use with kBlocks; else all 0
  int buffers() const;          // batches held in memory at once: 1 means no reading ahead
  // Of its arrays together; see array.h.
  LoaderStats stats() const;

  RowLoaderState state() const;
  // Goes on where `state` was taken, also with another world, batch size or prefetch depth. Throws
  // Error (kInvalid) that names the difference when it belongs to other data or another order. Of
  // `mixture`, what the rows so far depend on must be the same; what comes later may differ.
  void load(const RowLoaderState& state);

  // Which rows the batch of a step has. Reads nothing.
  std::vector<RowOrigin> explain(std::uint64_t step) const;

  // Ends the reading ahead and gives all memory back. Later calls throw Error (kClosed).
  void close();

  struct Impl;

 private:
  struct End {
    void operator()(void* impl) const;  // an Impl
  };
  std::unique_ptr<Impl, End> impl_;
};

}  // namespace evenkeel

#pragma GCC visibility pop
