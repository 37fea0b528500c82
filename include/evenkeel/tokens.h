// Token files far larger than memory, and the training batches that are cut from them.
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
#include "evenkeel/loader.h"

#pragma GCC visibility push(default)

namespace evenkeel {

struct TokensOptions {
  // Bytes that these tokens, and all loaders made from them, may occupy. See budget.h.
  Budget budget = {};
  EngineKind engine = EngineKind::kAuto;
  PageCache page_cache = PageCache::kSpare;  // as in ArrayOptions
  // The dtype of a file without a header (default uint16). A file with a header names its own.
  std::optional<DType> dtype = {};
  // As in ArrayOptions: the limit of the cache in bytes. 0: no cache.
  std::optional<std::uint64_t> cache = {};
  std::string disk_cache = {};  // as in ArrayOptions: "/nvme/ek:200GiB"
  // Opens only tokens start .. stop-1 of the stream. Negative numbers count from its end. Without
  // `stop`, the slice extends to the end.
  std::int64_t start = 0;
  std::optional<std::int64_t> stop = {};
};

// One stream of tokens in one file or in several shards: nanoGPT, llm.c, Megatron, datatrove, NPY
// or headerless integers, detected by their magic. Opening reads only headers and indexes. The
// files are never written. Copies share files and budget. Thread-safe. After `fork` a child may
// continue to use them. A moved-from object may only be destroyed or assigned to.
class Tokens {
 public:
  // A path or a URL, or a pattern with * ? [] whose matches are taken in sorted order.
  static Tokens open(const std::string& path_or_glob, const TokensOptions& options = {});
  static Tokens open(const std::vector<std::string>& paths, const TokensOptions& options = {});

  std::uint64_t size() const;         // tokens
  std::uint64_t first_token() const;  // in the files; above 0 for a slice
  DType dtype() const;                // as stored
  std::string format() const;         // "llm.c (GPT-2, 3 shards)"
  const std::vector<std::string>& paths() const;
  const Budget& budget() const;
  EngineReport engine() const;
  ArrayStats stats() const;  // including loaders, except those of mixtures; see array.h

  // Tokens start .. stop-1 of this stream as a separate stream, for instance the part of a file
  // that is used for validation. It shares the budget and has its own fingerprint. Negative numbers
  // count from the end.
  Tokens slice(std::int64_t start, std::optional<std::int64_t> stop = {}) const;

  // Reads `count` tokens from each start, as they are stored: crop i of `out` holds tokens
  // starts[i] .. starts[i]+count-1. Throws kIndex if a crop extends beyond the stream.
  void crops(std::span<const std::uint64_t> starts, std::uint64_t count,
             std::span<std::byte> out) const;

  // Row i of x is tokens starts[i] .. starts[i]+block_size-1, and row i of y is the same shifted by
  // one token. The result equals slices of a memmap, widened to T (std::int64_t, std::int32_t, or
  // the stored type). x and y must each hold starts.size() * block_size tokens. Throws kIndex if a
  // crop extends beyond the stream, and kInvalid if a stored token may not fit T.
  template <class T>
  void xy(std::span<const std::uint64_t> starts, std::uint64_t block_size, std::span<T> x,
          std::span<T> y) const {
    xy(starts, block_size, DType::of<T>(), std::as_writable_bytes(x), std::as_writable_bytes(y));
  }
  void xy(std::span<const std::uint64_t> starts, std::uint64_t block_size, DType type,
          std::span<std::byte> x, std::span<std::byte> y) const;

  // Identifies the data: the same text for the same files in any folder. It is part of every state.
  const std::string& fingerprint() const;

  struct Impl;

 private:
  friend struct TokenInternals;  // src/tokens/impl.h
  explicit Tokens(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

enum class CropOrder : std::uint8_t {
  kRandom,    // uniform starts on [0, n-T) with replacement, as nanoGPT draws them; no epochs
  kShuffled,  // blocks at multiples of T, each once per epoch
  kCovering,  // each block once per epoch, at a phase that differs in each of T epochs: no block is
              // cut twice in the same place; an epoch leaves out fewer than 2T tokens at the ends
  kBlocks,    // the crops of kCovering; blocks of neighbouring crops are shuffled and read with one
              // request, and the crops of a window of blocks are mixed in memory
  kMegatron,  // the samples of megatron-core's GPTDataset and BlendedDataset, in their order
};
// "random", "shuffled", "covering", "blocks", "megatron"
CropOrder parse_crop_order(std::string_view name);
std::string_view crop_order_name(CropOrder order);

// For kMegatron: what Megatron's order depends on, apart from data, seed and block size. Each
// Tokens must be one whole Megatron file or a part from megatron_split. A mixture is a blend. The
// index is built in memory, within the budget, when the loader is made; docs/orders.md says how
// large it is.
struct MegatronOptions {
  // The number of samples to prepare (Megatron: train_samples, or train_iters x the global batch
  // size). 0: `steps` x world x batch_size, or one epoch without `steps`. The loader ends after the
  // samples that Megatron prepares for this number, which may be more.
  std::uint64_t samples = 0;
  // Megatron's mid_level_dataset_surplus: the share of extra samples that is prepared of each set
  // of a blend.
  double surplus = 0.005;
  // Blends like Megatron without weights: by the number of samples of each set in one epoch.
  bool by_size = false;
};

// The parts of a Megatron split such as "969,30,1": training, validation, test. Each part has the
// same whole documents as in megatron-core. A part without documents is empty.
std::vector<std::optional<Tokens>> megatron_split(const Tokens& tokens, const std::string& split);

// How a loader treats the documents in the stream. docs/documents.md defines each mode.
enum class DocumentMode : std::uint8_t {
  kNone,    // ignores them: rows are crops of the stream
  kMask,    // the same rows, with the places where documents begin
  kStart,   // every row begins at the start of a document
  kPacked,  // rows of whole documents; documents longer than a row are split
  kWhole,   // one document per row, so rows differ in length: for fine-tuning
};
// "none", "mask", "start", "packed", "whole"
DocumentMode parse_document_mode(std::string_view name);
std::string_view document_mode_name(DocumentMode mode);

struct DocumentOptions {
  DocumentMode mode = DocumentMode::kNone;
  // The token that each document begins or ends with, for files without an index of documents. Set
  // at most one of them. Files of llm.c have their own bos.
  std::optional<std::int64_t> bos = {}, eos = {};
  // A folder for the indexes that are built for such files; empty: beside each file.
  std::string index = {};
  // False: loss_mask leaves out predictions of the first token of a document.
  bool predict_first = true;
  // If not 0, cu_seqlens always has most_documents + 1 numbers; unused ones are empty documents at
  // the end. A batch with more documents is an error. 0: as long as necessary.
  std::uint32_t most_documents = 0;
  // kStart: what to do with a block in which no document begins. False: its row begins at the next
  // document instead. True: it begins inside the long document, so that all of it is used.
  bool use_leftovers = false;
  // kPacked: `window` rows are packed together (0: 512), and the rows of `mixed_windows` such
  // groups are mixed. kWhole: `window` documents are sorted by length (0: 4,096; rounded up to
  // whole buckets). Both are part of the order: other numbers give other rows.
  std::uint32_t window = 0, mixed_windows = 8;
  // kWhole: how many documents of similar length stay together. 0: world * batch_size, one step.
  // Part of the order.
  std::uint64_t bucket = 0;
  // kPacked: what to do with documents longer than a row. False: they are split. True: only their
  // first block_size tokens are used, as in kWhole. See Packing::cut.
  bool crop_long = false;
  // kPacked: the token that fills the rest of a row.
  std::int64_t pad = 0;
};

// What the document mode costs, as shares from 0 to 1 of the rows prepared so far.
struct Packing {
  double padding = 0;  // positions that hold no token
  double cut = 0;      // tokens in no row: of long documents, and with kStart also others
  double split = 0;    // kPacked: documents that were split although they fit a row
  double inside = 0;   // kStart: rows that begin inside a document
};

// The caller's memory for one batch, for instance pinned memory.
struct BatchMemory {
  std::span<std::byte> x, y;
  std::span<std::byte> documents = {};  // if there are documents; see Batch::document_bytes
};

struct LoaderOptions {
  std::uint64_t batch_size = 1;     // rows of a batch of this rank
  std::uint64_t block_size = 1024;  // tokens of a row
  CropOrder order = CropOrder::kRandom;
  std::uint64_t seed = 0;
  // For kBlocks, in crops; as in RowLoaderOptions. With DocumentMode::kWhole, block_rows counts
  // documents (0: 64). With kWhole and kPacked, the windows are those of DocumentOptions, and in a
  // mixture `streams` is the number of samples taken from a set at a time. `TokenLoader::blocks`
  // returns the chosen numbers.
  BlockOptions blocks = {0, 0, 0};
  // The number of this process, and how many there are. Together they take world * batch_size
  // samples per step.
  std::uint64_t rank = 0, world = 1;
  // Batches read ahead; fewer if the budget does not hold them. With 0, a batch is read when it is
  // requested. The default is 4, and up to 16 if batches are too small for 4 of them to keep a disk
  // busy.
  std::optional<std::uint32_t> prefetch = {};
  // The dtype of x and y: int64, int32 or the stored one. Empty: the stored one.
  std::optional<DType> dtype = DType::of<std::int64_t>();
  // The loader ends after `steps` batches, or after as many whole batches as `epochs` epochs hold.
  // Set at most one of them. With neither it does not end, except that kMegatron ends after its
  // last sample and MixtureOptions::max_epochs may end a mixture. With `steps`, a new loop over the
  // loader starts at step 0 again (the same batches each time, for validation); with `epochs` it
  // continues. `epochs` needs a single set of tokens and an order that has epochs. With kBlocks
  // each epoch has whole batches: crops that do not fill a step are left out, and in the next epoch
  // other crops are (except with kPacked). With DocumentMode::kWhole and one set, the last batch of
  // an epoch has the documents that are left.
  std::uint64_t steps = 0, epochs = 0;
  // For several sets: weights that change, and how often a set may be repeated.
  MixtureOptions mixture = {};
  MegatronOptions megatron = {};
  DocumentOptions documents = {};

  using Workers = LoaderWorkers;
  Workers workers = {};

  // For copies to a device that are still in progress when the next batch is requested.
  struct Buffers {
    // A batch stays valid while this many more are taken. 0: until the next call of next(). A new
    // loop, `seek` and `load` end the validity of all batches; `close` does not.
    std::uint32_t keep = 0;
    // If not empty, batches are placed here instead of in memory of the library. There must be at
    // least 1 + keep of them, each large enough and aligned: x and y for their dtype, documents to
    // 4 bytes. This memory does not count against the budget.
    std::vector<BatchMemory> memory = {};
  };
  Buffers buffers = {};
};

// Offsets in bytes of the fields in Batch::document_bytes. The number of documents, the length of
// the longest one and the number of positions are uint32 at bytes 0, 4 and 8.
struct DocumentsLayout {
  std::uint64_t position_ids = 0, document_ids = 0, cu_seqlens = 0, loss_mask = 0, bytes = 0;
  std::uint64_t most_documents = 0;  // cu_seqlens has room for one more number
};
DocumentsLayout documents_layout(std::uint64_t rows, std::uint64_t columns,
                                 std::uint32_t most_documents);

// Rows of tokens, row-major, in memory that the loader owns. With DocumentMode::kWhole a batch is
// one row that holds its documents one after the other; cu_seqlens says where each begins.
class Batch {
 public:
  std::uint64_t step() const { return step_; }
  bool ragged() const { return ragged_; }  // kWhole
  std::uint64_t rows() const { return rows_; }
  std::uint64_t columns() const { return columns_; }
  DType dtype() const { return dtype_; }
  // x() and y() throw Error (kInvalid) if T is not the dtype.
  template <class T>
  Rows<T> x() const {
    require(DType::of<T>());
    return {reinterpret_cast<const T*>(x_), rows_, columns_};
  }
  template <class T>
  Rows<T> y() const {
    require(DType::of<T>());
    return {reinterpret_cast<const T*>(y_), rows_, columns_};
  }
  std::span<const std::byte> x_bytes() const { return {x_, rows_ * columns_ * dtype_.size}; }
  std::span<const std::byte> y_bytes() const { return {y_, rows_ * columns_ * dtype_.size}; }

  // The following need a DocumentOptions::mode and throw Error (kInvalid) without one. Documents
  // are counted as far as they are in the row: if a row begins inside a document, the document
  // starts there.
  Rows<std::int32_t> position_ids() const;  // counted from 0 in each document
  // The number of the document in the batch, as in cu_seqlens; -1 for padding.
  Rows<std::int32_t> document_ids() const;
  // 1 where y counts for the loss: not in padding, and not where WeightedTokens::loss_mask is 0 for
  // the token in y. See also DocumentOptions::predict_first.
  Rows<std::uint8_t> loss_mask() const;
  // The start of each document in the concatenated rows of the batch, and the end, as varlen
  // attention expects it. Padding at the end of a row counts as a document here.
  std::span<const std::int32_t> cu_seqlens() const;
  std::uint64_t max_seqlen() const;  // the longest of them
  // All of these in one contiguous buffer; `documents_layout` describes it.
  std::span<const std::byte> document_bytes() const { return {documents_, layout_.bytes}; }

 private:
  friend class TokenLoader;
  void require(DType wanted) const;
  const std::byte* require_documents() const;

  std::uint64_t step_ = 0, rows_ = 0, columns_ = 0;
  DType dtype_;
  const std::byte *x_ = nullptr, *y_ = nullptr, *documents_ = nullptr;
  DocumentsLayout layout_;
  bool ragged_ = false;
  bool fixed_documents_ = false;  // cu_seqlens always has most_documents + 1 numbers
};

// The position of a loader and the data it belongs to. Small; text() is one line.
struct LoaderState {
  std::uint64_t samples = 0;  // taken so far by all ranks together
  std::uint64_t seed = 0;
  std::uint64_t block_size = 0;
  CropOrder order = CropOrder::kRandom;
  BlockOptions blocks = {0, 0, 0};  // of kBlocks
  std::string data;                 // fingerprints and weights of the token sets

  std::string text() const;
  static LoaderState parse(const std::string& text);
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

// What a row of a batch was cut from.
struct CropOrigin {
  std::uint64_t sample = 0;  // position in the global order
  std::size_t set = 0;       // number of the set in a mixture
  std::uint64_t epoch = 0;   // of that set; 0 with kRandom
  std::uint64_t start = 0;   // first token
  std::string path;          // the file in which it begins
  std::uint64_t offset = 0;  // byte in that file
  // The documents in the row, in modes that look them up in an index.
  struct Document {
    std::uint64_t document = 0;  // its number in the set
    std::uint64_t from = 0;      // its first token in this row, counted in the document
    std::uint64_t start = 0;     // the same, counted in the set
    std::uint64_t tokens = 0;    // how many of its tokens are in this row
  };
  std::vector<Document> documents = {};
  std::size_t stage = 0;  // of a mixture with stages; see MixtureOptions
};

struct WeightedTokens {
  Tokens tokens;
  // Share of the samples, relative to the weights of the other sets. Weights become fractions with
  // a denominator up to 4,096 if that is exact, otherwise multiples of 2^-20. Shares are then exact
  // to within one sample at every prefix.
  double weight = 1;
  // With documents: one number for each token, 0 for tokens that are not to be predicted, for
  // instance those of a prompt. See Batch::loss_mask. It is read beside the tokens, within its own
  // budget.
  std::optional<Tokens> loss_mask = {};
};

// Training batches: every batch is a pure function of (data, seed, step, rank, world). With the
// same world * batch_size, the batches of all ranks at a step are the same samples for every world;
// with kBlocks the world size must divide the number of streams. Threads of the library read and
// widen batches ahead, within the budget of the (first) token set. Use it from one thread at a
// time; only `close` may be called from any thread. Do not use it in a child of fork. It keeps what
// it needs of the tokens. Movable, not copyable; a move invalidates its iterators but not its
// batches, and a moved-from loader may only be destroyed or assigned to.
class TokenLoader {
 public:
  using Iterator = BatchIterator<TokenLoader, Batch>;

  TokenLoader(const Tokens& tokens, LoaderOptions options);
  TokenLoader(std::vector<WeightedTokens> mixture, LoaderOptions options);
  // The next batch, or nullptr after the last. Throws the error of the read, with path and offset,
  // or Error (kClosed) after `close`, even if it was already waiting.
  const Batch* next();
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  std::uint64_t step() const;  // of the batch that next() returns next
  // Continues with this step, or, if `workers` has a stride, with the first step of this worker
  // from there on. O(1). Throws Error (kInvalid) for a step whose samples cannot be counted in 63
  // bits.
  void seek(std::uint64_t step);
  // Batches of one loop; 0 if it does not end.
  std::uint64_t size() const;
  // Samples of an epoch of all ranks together (of the first set); 0 with kRandom.
  std::uint64_t epoch_samples() const;
  BlockOptions blocks() const;  // in use with kBlocks; else all 0
  int buffers() const;          // batches in memory at once: 1 means no reading ahead
  Packing packing() const;      // may be called from any thread; zeros without documents
  // What was read. With one set of tokens, this includes reads by the tokens themselves and by
  // other loaders. May be called from any thread.
  LoaderStats stats() const;

  LoaderState state() const;
  // Continues from `state`. World size, batch size and prefetch depth may differ. Throws Error
  // (kInvalid) that names the difference if the state belongs to other data or another order. Those
  // parts of `mixture` that determine the samples taken so far must be the same; later stages may
  // differ.
  void load(const LoaderState& state);

  // Which tokens the batch of a step is cut from, row by row. Reads nothing except the index of
  // documents, if there is one.
  std::vector<CropOrigin> explain(std::uint64_t step) const;

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
