// Training batches of rows, from one array or from several whose rows belong together.
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

// What the arrays of a loader have read, and how long the program waited for batches.
struct LoaderStats : ArrayStats {
  std::uint64_t batches = 0;        // handed out
  std::uint64_t batch_wait_ns = 0;  // time the program waited for batches: 0 if reading keeps up
};

// Iterates over a loader whose `next` returns a pointer to the next batch, or nullptr at the end.
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
  // For kBlocks. A number that is 0 is chosen from the budget, counting the row bytes of all arrays
  // together (see choose_blocks); `blocks()` returns the chosen numbers. They are part of a state:
  // a loader that loads a state takes them from it.
  BlockOptions blocks = {0, 0, 0};
  // The number of this process, and how many there are. Together they take world * batch_size rows
  // per step.
  std::uint64_t rank = 0, world = 1;
  // Batches read ahead; fewer if the budget does not hold them. With 0, a batch is read when it is
  // requested. The default is 4, and up to 16 if batches are too small for 4 of them to keep a disk
  // busy.
  std::optional<std::uint32_t> prefetch = {};
  // A loop over the loader ends after `steps` batches or after `epochs` epochs; set at most one of
  // them. With neither, it ends after one epoch; kRandom and mixtures have no epochs, so it does
  // not end. With `steps`, a new loop starts at step 0 again (the same batches each time, for
  // validation). Otherwise it continues with the next epochs.
  std::uint64_t steps = 0, epochs = 0;
  // For several sets: weights that change, and how often a set may be repeated.
  MixtureOptions mixture = {};
  // What happens to the last rows of an epoch if they do not fill a step. False: they make a last,
  // short step, divided evenly among the ranks; with fewer rows than ranks, some batches are empty.
  // True: they are left out. In the next epoch other rows are.
  bool drop_last = false;
  LoaderWorkers workers = {};

  // For copies to a device that are still in progress when the next batch is requested.
  struct Buffers {
    // A batch stays valid while this many more are taken. 0: until the next call of next(). A new
    // loop, `seek` and `load` end the validity of all batches; `close` does not.
    std::uint32_t keep = 0;
    // If not empty, batches are placed here instead of in memory of the library. There must be at
    // least 1 + keep batches, each with a span per field that is large enough for batch_size rows
    // and aligned for its dtype. This memory does not count against the budget.
    std::vector<std::vector<std::span<std::byte>>> memory = {};
  };
  Buffers buffers = {};
};

// Rows of one or several arrays that belong together, in memory that the loader owns. An array is
// one field. Rows of different lengths (LoaderField::ragged, csr) are several fields. Fields are in
// the order of the arrays.
class RowBatch {
 public:
  std::uint64_t step() const { return step_; }
  std::uint64_t rows() const { return rows_; }  // fewer than batch_size in a last, short step
  std::size_t fields() const { return fields_.size(); }
  // Like the next two, it throws Error (kIndex) if there is no such field.
  DType dtype(std::size_t field = 0) const { return at(field).dtype; }
  // Row-major, in the machine's byte order.
  std::span<const std::byte> bytes(std::size_t field = 0) const {
    return {at(field).data, at(field).bytes};
  }
  // Throws Error (kInvalid) if T is not the dtype of the field. Values and offsets of rows of
  // different lengths are returned as rows of one number.
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
  const Field& at(std::size_t field) const;
  void require(std::size_t field, DType wanted) const;

  std::uint64_t step_ = 0, rows_ = 0;
  std::vector<Field> fields_;
};

// The position of a loader and the data it belongs to. Small; text() is one line.
struct RowLoaderState {
  // Taken so far by all ranks together, including those that drop_last left out.
  std::uint64_t samples = 0;
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
  std::size_t set = 0;       // number of the set in a mixture
  std::uint64_t epoch = 0;   // of that set; 0 with kRandom
  std::uint64_t row = 0;     // in the arrays of that set
  std::size_t stage = 0;     // of a mixture with stages; see MixtureOptions
};

// What a loader reads rows from. It shares the files of the arrays and stays valid after they are
// closed.
class LoaderField {
 public:
  LoaderField(const Array& array);  // NOLINT(google-explicit-constructor): arrays are fields

  // Row i is values[offsets[i]] .. values[offsets[i+1]-1]; there is one row fewer than offsets. A
  // batch has two fields: the concatenated values of its rows, and rows() + 1 offsets into them
  // (int64, starting at 0). Offsets are read and checked when they are needed: reading throws Error
  // (kFormat) if they decrease or exceed the values.
  static LoaderField ragged(const Array& values, const Array& offsets);
  // A sparse matrix in CSR format. A batch has three fields: data, indices and indptr (int64). With
  // `dense`, it has one field: rows of `columns` numbers.
  static LoaderField csr(const Array& data, const Array& indices, const Array& indptr,
                         std::uint64_t columns, bool dense = false);

 private:
  friend class Loader;
  std::uint64_t rows() const;
  std::uint64_t row_bytes() const;
  const Budget& budget() const;  // for rows of different lengths, the budget of their values

  std::shared_ptr<Array::Impl> array_;                // the rows, or the offsets
  std::vector<std::shared_ptr<Array::Impl>> values_;  // for rows of different lengths
  std::uint64_t columns_ = 0;
  bool dense_ = false;
};

struct WeightedRows {
  std::vector<LoaderField> fields;
  double weight = 1;  // share of the rows, relative to the other sets'; see WeightedTokens
};

// Batches of rows: every batch is a pure function of (data, order, seed, step, rank, world). With
// the same world * batch_size, the batches of all ranks at a step are the same rows for every
// world. Threads of the library, one for each array, read batches ahead within the budget of the
// first array. With kBlocks, the loader holds two windows of blocks for each set whose arrays are
// not mapped, in the budgets of those arrays. The world size must divide the number of streams, and
// each of several workers reads all windows. Use it from one thread at a time; only `close` may be
// called from any thread. Do not use it in a child of fork. It keeps what it needs of the arrays.
// Movable, not copyable; a move invalidates its iterators but not its batches, and a moved-from
// loader may only be destroyed or assigned to.
class Loader {
 public:
  using Iterator = BatchIterator<Loader, RowBatch>;

  // All fields must have the same number of rows; otherwise this throws Error (kInvalid) with the
  // numbers before anything is read. Throws kBudget if not even one batch fits.
  Loader(const Array& array, RowLoaderOptions options);
  Loader(std::vector<LoaderField> fields, RowLoaderOptions options);
  // All sets of a mixture must have the same number of fields, with the same dtypes and row shapes,
  // and rows of one length.
  Loader(std::vector<WeightedRows> mixture, RowLoaderOptions options);
  // The next batch, or nullptr after the last. Throws the error of the read, with path and offset,
  // or Error (kClosed) after `close`, even if it was already waiting.
  const RowBatch* next();
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  std::uint64_t step() const;  // of the batch that next() returns next
  // Continues with this step, or, if `workers` has a stride, with the first step of this worker
  // from there on. O(1). Throws Error (kInvalid) for a step whose rows cannot be counted in 63
  // bits.
  void seek(std::uint64_t step);
  std::uint64_t size() const;  // batches of one loop; 0 if it does not end
  // Rows of an epoch of all ranks together; 0 without epochs, for example for mixtures.
  std::uint64_t epoch_rows() const;
  BlockOptions blocks() const;  // in use with kBlocks; else all 0
  int buffers() const;          // batches in memory at once: 1 means no reading ahead
  // The sums for all its arrays; see array.h.
  LoaderStats stats() const;

  RowLoaderState state() const;
  // Continues from `state`. World size, batch size and prefetch depth may differ. Throws Error
  // (kInvalid) that names the difference if the state belongs to other data or another order. Those
  // parts of `mixture` that determine the rows taken so far must be the same; later stages may
  // differ.
  void load(const RowLoaderState& state);

  // Which rows the batch of a step has. Reads nothing.
  std::vector<RowOrigin> explain(std::uint64_t step) const;

  // Stops reading ahead and frees all memory, except that of batches that are valid: those stay
  // valid until the loader is destroyed. Later calls of next, begin and seek, and of load with a
  // state that fits, throw Error (kClosed). Closing twice is fine.
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
