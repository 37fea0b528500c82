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
  // What a file without a header holds (default uint16). Files with a header say it themselves.
  std::optional<DType> dtype = {};
  // As in ArrayOptions: the most bytes for tokens that are asked for again. 0: no cache.
  std::optional<std::uint64_t> cache = {};
  std::string disk_cache = {};  // as in ArrayOptions: "/nvme/ek:200GiB"
  // Tokens start .. stop-1 of the stream alone. Negative numbers count from its end; without `stop`
  // it goes to the end.
  std::int64_t start = 0;
  std::optional<std::int64_t> stop = {};
};

// One stream of tokens in one file or in several shards: nanoGPT, llm.c, Megatron, datatrove, NPY
// or headerless integers, told apart by magic. Nothing is read at open but headers and indexes;
// nothing is ever written. Copies share files and budget; safe to use from several threads.
class Tokens {
 public:
  // A path, or a pattern with * ? [] whose matches are taken in sorted order.
  static Tokens open(const std::string& path_or_glob, const TokensOptions& options = {});
  static Tokens open(const std::vector<std::string>& paths, const TokensOptions& options = {});

  std::uint64_t size() const;         // tokens
  std::uint64_t first_token() const;  // in the files; above 0 for a slice
  DType dtype() const;                // as stored
  std::string format() const;         // "llm.c (GPT-2, 3 shards)"
  const std::vector<std::string>& paths() const;
  const Budget& budget() const;
  EngineReport engine() const;
  ArrayStats stats() const;  // loaders included, but for those of mixtures; see array.h

  // Tokens start .. stop-1 of this stream as a stream of their own, for instance a part of a file
  // for validation. Shares the budget; has a fingerprint of its own. Negative numbers count from
  // the end.
  Tokens slice(std::int64_t start, std::optional<std::int64_t> stop = {}) const;

  // `count` tokens from each start, as they are stored: crop i of `out` holds tokens starts[i] ..
  // starts[i]+count-1. Throws kIndex when a crop leaves the stream.
  void crops(std::span<const std::uint64_t> starts, std::uint64_t count,
             std::span<std::byte> out) const;

  // Row i of x is tokens starts[i] .. starts[i]+block_size-1, row i of y the same one token on:
  // just what slicing a memmap gives, widened to T (std::int64_t, std::int32_t, or as stored). x
  // and y must each hold starts.size() * block_size. Throws kIndex when a crop leaves the stream,
  // kInvalid when a stored token may not fit T.
  template <class T>
  void xy(std::span<const std::uint64_t> starts, std::uint64_t block_size, std::span<T> x,
          std::span<T> y) const {
    xy(starts, block_size, DType::of<T>(), std::as_writable_bytes(x), std::as_writable_bytes(y));
  }
  void xy(std::span<const std::uint64_t> starts, std::uint64_t block_size, DType type,
          std::span<std::byte> x, std::span<std::byte> y) const;

  // Which data this is: the same text for the same files wherever they lie. Part of every state.
  const std::string& fingerprint() const;

  struct Impl;

 private:
  friend struct TokenInternals;  // src/tokens/impl.h
  explicit Tokens(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

enum class CropOrder : std::uint8_t {
  kRandom,    // uniform starts on [0, n-T) with replacement, as nanoGPT draws them; no epochs
  kShuffled,  // blocks at multiples of T, each once an epoch
  kCovering,  // a phase of its own each epoch, then each block once: never the same cut twice in T
              // epochs; fewer than 2T tokens at the ends are left out of an epoch
  kBlocks,    // the crops of kCovering; blocks of neighbouring ones are shuffled and read with one
              // request, and the crops of a window of blocks are mixed in memory
  kMegatron,  // the samples of megatron-core's GPTDataset and BlendedDataset, in their order
};
// "random", "shuffled", "covering", "blocks", "megatron"
CropOrder parse_crop_order(std::string_view name);
std::string_view crop_order_name(CropOrder order);

// Of kMegatron: what Megatron's order depends on besides data, seed and block size. Tokens are
// whole Megatron files, one each, or parts of megatron_split; a mixture is a blend. The index is
// built in memory when the loader is made, in the budget; docs/orders.md says how much.
struct MegatronOptions {
  // For how many samples the order is made (Megatron: train_samples, or train_iters x the global
  // batch size). 0: `steps` x world x batch_size, or without `steps` one epoch. The loader ends
  // with the samples that Megatron makes of it, which may be more.
  std::uint64_t samples = 0;
  // Megatron's mid_level_dataset_surplus: how many more samples are prepared of each set of a
  // blend.
  double surplus = 0.005;
  // Blends as Megatron does without weights: by the number of samples of each set in one epoch.
  bool by_size = false;
};

// The parts of a Megatron split such as "969,30,1": training, validation, test. Each takes whole
// documents, as many as megatron-core gives it; a part without documents is empty.
std::vector<std::optional<Tokens>> megatron_split(const Tokens& tokens, const std::string& split);

// What a loader makes of the documents in the stream. docs/documents.md defines each mode.
enum class DocumentMode : std::uint8_t {
  kNone,    // nothing: rows are crops of the stream
  kMask,    // the same rows, and where documents begin in them
  kStart,   // every row begins at a document's start
  kPacked,  // rows of whole documents; what is longer than a row is split
  kWhole,   // one document to a row, so that rows differ in length: for fine-tuning
};
// "none", "mask", "start", "packed", "whole"
DocumentMode parse_document_mode(std::string_view name);
std::string_view document_mode_name(DocumentMode mode);

struct DocumentOptions {
  DocumentMode mode = DocumentMode::kNone;
  // The token that each document begins with, or the one that it ends with, in files without an
  // index of documents. At most one of them. Files of llm.c have a bos of their own.
  std::optional<std::int64_t> bos = {}, eos = {};
  // A folder for the indexes that are made of such files; empty: beside each file.
  std::string index = {};
  // False: loss_mask leaves out predictions of the first token of a document.
  bool predict_first = true;
  // cu_seqlens always has so many documents + 1 numbers; those that are not needed are empty
  // documents at the end. A batch of more documents is an error. 0: as long as it needs to be.
  std::uint32_t most_documents = 0;
  // kStart: a block in which no document begins. False: its row begins at the next document
  // instead. True: it begins inside the long document, so that all of that is seen.
  bool use_leftovers = false;
  // kPacked: rows that are packed together (0: 512), and groups of rows whose order is mixed.
  // kWhole: `window` documents are sorted by length (0: 4,096; rounded up to whole buckets). Part
  // of the order: other numbers give other rows.
  std::uint32_t window = 0, mixed_windows = 8;
  // kWhole: documents of about one length that come together. 0: world * batch_size, a step. Part
  // of the order.
  std::uint64_t bucket = 0;
  // kPacked: documents longer than a row. False: they are split. True: the first block_size tokens
  // are used, and the rest is left out, as kWhole always does. See Packing::cut.
  bool crop_long = false;
  // kPacked: fills what is left of a row.
  std::int64_t pad = 0;
};

// What modes cost, of the rows that were prepared so far: shares from 0 to 1.
struct Packing {
  double padding = 0;  // positions that hold no token
  double cut = 0;      // tokens that no row shows: of long documents, and with kStart others
  double split = 0;    // kPacked: documents that fit a row and were split nevertheless
  double inside = 0;   // kStart: rows that begin inside a document
};

// Memory of the caller's for one batch, pinned memory for instance.
struct BatchMemory {
  std::span<std::byte> x, y;
  std::span<std::byte> documents = {};  // with documents; see Batch::document_bytes
};

struct LoaderOptions {
  std::uint64_t batch_size = 1;     // rows of a batch of this rank
  std::uint64_t block_size = 1024;  // tokens of a row
  CropOrder order = CropOrder::kRandom;
  std::uint64_t seed = 0;
  // Of kBlocks, in crops; as in RowLoaderOptions. With DocumentMode::kWhole, block_rows is
  // documents (0: 64), and with that and kPacked the windows are those of DocumentOptions. In a
  // mixture of these `streams` is how many samples it takes of a set at a time.
  // `TokenLoader::blocks` says what was chosen.
  BlockOptions blocks = {0, 0, 0};
  // This process among `world`: together they take world * batch_size samples a step.
  std::uint64_t rank = 0, world = 1;
  // Batches read ahead. Fewer where the budget does not hold them; 0 reads when asked. By default
  // 4, and up to 16 where batches are so small that 4 of them do not keep a disk busy.
  std::optional<std::uint32_t> prefetch = {};
  // Of x and y: int64, int32, or what is stored. Nothing: as stored.
  std::optional<DType> dtype = DType::of<std::int64_t>();
  // The loader ends after `steps` batches, or after as many whole batches as `epochs` epochs hold.
  // At most one of them. 0 and 0: it does not end, but for kMegatron, which ends with its last
  // sample, and MixtureOptions::max_epochs. A new loop over the loader begins at step 0 with
  // `steps` (the same batches each time, as validation wants), and goes on with `epochs`. Epochs
  // take one set of tokens and an order that has them. With kBlocks each epoch has whole batches:
  // crops that are less than a step are left out, and other ones in the next epoch (but for
  // kPacked). With
  // DocumentMode::kWhole and one set, the last batch of an epoch has what is left.
  std::uint64_t steps = 0, epochs = 0;
  // Of several sets: weights that change, and how often a set may come.
  MixtureOptions mixture = {};
  MegatronOptions megatron = {};
  DocumentOptions documents = {};

  using Workers = LoaderWorkers;
  Workers workers = {};

  // For copies to a device that are still under way when the next batch is asked for.
  struct Buffers {
    // A batch stays valid until so many more have been taken. 0: until the next call of next().
    std::uint32_t keep = 0;
    // If not empty, batches are laid here instead of in memory of the library's; at least 1 + keep
    // of them, each large enough. They do not count against the budget.
    std::vector<BatchMemory> memory = {};
  };
  Buffers buffers = {};
};

// Where the fields of a batch's documents lie in Batch::document_bytes, in bytes from its
// beginning. Number of documents, longest one and number of positions are uint32 at bytes 0, 4
// and 8.
struct DocumentsLayout {
  std::uint64_t position_ids = 0, document_ids = 0, cu_seqlens = 0, loss_mask = 0, bytes = 0;
  std::uint64_t most_documents = 0;  // cu_seqlens has room for one more number
};
DocumentsLayout documents_layout(std::uint64_t rows, std::uint64_t columns,
                                 std::uint32_t most_documents);

// Rows of tokens, row-major, in memory of the loader's. With DocumentMode::kWhole one row, which
// has the batch's documents one after the other; cu_seqlens says where each begins.
class Batch {
 public:
  std::uint64_t step() const { return step_; }
  bool ragged() const { return ragged_; }  // kWhole
  std::uint64_t rows() const { return rows_; }
  std::uint64_t columns() const { return columns_; }
  DType dtype() const { return dtype_; }
  // Throw Error (kInvalid) when T is not the dtype.
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

  // With DocumentOptions::mode; throw Error (kInvalid) without. A row's documents are what it shows
  // of them: a document that was cut by the row's beginning counts from there.
  Rows<std::int32_t> position_ids() const;  // from 0 on in each document
  // Which of the batch's documents, counted as cu_seqlens does; -1 for padding.
  Rows<std::int32_t> document_ids() const;
  // 1 where y counts: not in padding, nor where WeightedTokens::loss_mask has 0 for the token in y;
  // and see DocumentOptions::predict_first.
  Rows<std::uint8_t> loss_mask() const;
  // Where the documents begin in the batch's rows one after the other, and the end: what varlen
  // attention takes. Padding at the end of a row is a document of its own here.
  std::span<const std::int32_t> cu_seqlens() const;
  std::uint64_t max_seqlen() const;  // the longest of them
  // All of these in one piece of memory, which `documents_layout` explains.
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
  bool fixed_documents_ = false;  // cu_seqlens has room for most_documents, always
};

// Where a loader stands and which data that belongs to. Small; text() is one line.
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
  std::size_t set = 0;       // which of the token sets of a mixture
  std::uint64_t epoch = 0;   // of that set; 0 with kRandom
  std::uint64_t start = 0;   // first token
  std::string path;          // the file in which it begins
  std::uint64_t offset = 0;  // byte in that file
  // What the row shows of documents, with a mode that looks them up in an index.
  struct Document {
    std::uint64_t document = 0;  // number in the set
    std::uint64_t from = 0;      // its first token here, counted in the document
    std::uint64_t start = 0;     // the same, counted in the set
    std::uint64_t tokens = 0;    // how many of it
  };
  std::vector<Document> documents = {};
  std::size_t stage = 0;  // of a mixture that changes; see MixtureOptions
};

struct WeightedTokens {
  Tokens tokens;
  // Share of the samples, relative to the other sets'. Taken as a fraction with a denominator up to
  // 4,096 where that is exact, else as a multiple of 2^-20; shares are then exact to within one
  // sample at every prefix.
  double weight = 1;
  // With documents: as many numbers as `tokens` has, 0 for each token that is not to be predicted,
  // a prompt's for instance. See Batch::loss_mask. Read beside the tokens, within its own budget.
  std::optional<Tokens> loss_mask = {};
};

// Training batches: every batch is a pure function of (data, seed, step, rank, world). With the
// same world * batch_size, the batches of all ranks at a step are the same samples for every world;
// with kBlocks the world must divide the streams. Batches are read and widened ahead by threads of
// the library's own, inside the budget of the (first) token set. One thread at a time, but for
// `close`, which may come from any; not to be used in a child of fork. Moves, does not copy.
class TokenLoader {
 public:
  using Iterator = BatchIterator<TokenLoader, Batch>;

  TokenLoader(const Tokens& tokens, LoaderOptions options);
  TokenLoader(std::vector<WeightedTokens> mixture, LoaderOptions options);
  // The next batch, or nullptr after the last. Throws what reading it threw, with the path and the
  // offset; Error (kClosed) after `close`, also if it was waiting already.
  const Batch* next();
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  std::uint64_t step() const;  // of the batch that next() gives next
  // To that step, or with a stride to the first of its own steps from there on. O(1). Throws Error
  // (kInvalid) for a step whose samples cannot be counted in 63 bits.
  void seek(std::uint64_t step);
  // Batches of one loop over it; 0 when it does not end.
  std::uint64_t size() const;
  // Samples of an epoch of all ranks together (of the first set); 0 with kRandom.
  std::uint64_t epoch_samples() const;
  BlockOptions blocks() const;  // in use with kBlocks; else all 0
  int buffers() const;          // batches held in memory at once: 1 means no reading ahead
  Packing packing() const;      // from any thread; zeros without documents
  // What was read; with one set of tokens, also by them and by other loaders. From any thread.
  LoaderStats stats() const;

  LoaderState state() const;
  // Goes on where `state` was taken, also with another world, batch size or prefetch depth. Throws
  // Error (kInvalid) that names the difference when it belongs to other data or another order. Of
  // `mixture`, what the samples so far depend on must be the same; what comes later may differ.
  void load(const LoaderState& state);

  // Which tokens the batch of a step is cut from, row by row. Reads nothing but, with documents,
  // their index.
  std::vector<CropOrigin> explain(std::uint64_t step) const;

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
