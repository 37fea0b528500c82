// The part of a token loader that handles documents: it looks them up, chooses rows by them, and
// fills the fields of a batch that say where they begin.
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

#include "array/row_feed.h"
#include "base/memory.h"
#include "documents/document_index.h"
#include "documents/packs.h"
#include "loader/schedule.h"
#include "tokens/document_fields.h"
#include "tokens/document_orders.h"
#include "tokens/document_windows.h"
#include "tokens/impl.h"
#include "tokens/loss_masks.h"

namespace evenkeel {

// `prepare`, `runs` and orders for kReading are for the reading thread: one call at a time. There
// is one call of `finish` at a time for each slot. `explain` and orders for kExplaining may be used
// by another thread meanwhile.
class DocumentBatches {
 public:
  // Finds the indexes of documents, and creates those that are missing, which may take as long as
  // reading the files. Throws Error.
  DocumentBatches(const std::vector<WeightedTokens>& sets, const LoaderOptions& options,
                  const Layout& joined, const Budget& budget);

  bool packed() const { return options_.documents.mode == DocumentMode::kPacked; }
  bool whole() const { return options_.documents.mode == DocumentMode::kWhole; }
  // Whether rows are made of pieces of documents. Then `runs` is called instead of `prepare`, and
  // returns what to read.
  bool in_pieces() const { return packed() || whole(); }
  const DocumentsLayout& layout() const { return layout_; }
  // The most stored tokens that a row needs room for.
  std::uint64_t stored_row() const { return packed() ? 2 * columns_ : columns_ + 1; }
  std::uint64_t reads_of_row() const { return packed() ? kUsualPieces : 1; }
  std::string describe(std::size_t set) const;  // for states
  // For kWhole: the number of positions of the batch that has these fields.
  static std::uint64_t places(const std::byte* fields) {
    return reinterpret_cast<const std::uint32_t*>(fields)[2];
  }

  // The order of one set, and the number of its rows. `crops` is the order of crops that kMask and
  // kStart are based on.
  enum class OrderUse { kReading, kExplaining, kWindows };
  std::unique_ptr<SampleOrder> order(std::size_t set, OrderUse use,
                                     std::unique_ptr<SampleOrder> crops);
  std::uint64_t rows(std::size_t set) const;

  // For kBlocks, if batches are copied out of windows that another thread reads. Must be called
  // before orders for kWindows are created.
  void open_windows();
  // What a DocumentWindowReader needs, except its order. `window_positions` is for `in_pieces`
  // only. `positions` is the most positions of a window that this rank has.
  std::uint64_t window_positions(std::size_t set) const;
  std::uint64_t usual_tokens(std::size_t set, std::uint64_t positions) const;
  std::uint64_t usual_spans(std::size_t set, std::uint64_t positions) const;
  std::uint64_t first_token_of(std::size_t set) const { return sets_[set].first_token; }
  std::optional<std::uint64_t> first_mask_of(std::size_t set) const { return masks_.first_of(set); }
  // Calls `use` with (first, count) for the tokens of the set that these rows need. For the thread
  // that reads windows.
  void for_each_span(std::size_t set, std::span<const std::uint64_t> rows,
                     const std::function<void(std::uint64_t, std::uint64_t)>& use);
  // Instead of reading: copies what row i of the batch needs, after `prepare` or `runs`.
  void copy_row(std::size_t slot, std::span<const std::uint64_t> rows, std::size_t i,
                const DocumentWindowReader::Held& window, std::byte* stored);

  void add_slot(const Budget& budget);
  std::uint64_t slot_bytes() const;
  void keep_slots(std::size_t count) {
    slots_.resize(std::min(count, slots_.size()));
    masks_.keep_slots(count);
  }

  // Look up the documents of a batch and fill its fields except x, y and what needs the tokens;
  // `fields` is where they go. `runs` also returns what to read, to memory that begins at `stored`.
  // They are called by the thread that reads, so that the thread that finishes has less to do.
  void prepare(std::size_t slot, std::span<const std::uint64_t> rows, std::byte* fields);
  std::span<const JobRun> runs(std::size_t slot, std::span<const std::uint64_t> rows,
                               std::byte* fields, std::byte* stored);
  // The array of loss masks, if there is one, and what to read from it. Call `mask_job` after
  // `prepare` or `runs`.
  const std::shared_ptr<Array::Impl>& mask_array() const { return masks_.array(); }
  Job& mask_job(std::size_t slot) { return masks_.job(slot); }
  // Called when everything was read. Finds the documents if `bos` and `eos` in the tokens separate
  // them, and applies loss masks.
  void finish(std::size_t slot, std::span<const std::uint64_t> rows, const std::byte* stored,
              std::byte* fields) const;
  // With `in_pieces`, fills x and y. Returns false if a token does not fit `out`.
  bool widen_pieces(std::size_t slot, std::byte* stored, DType out, std::byte* x,
                    std::byte* y) const;

  Packing packing() const;
  // The documents in a row of a set, as its order numbers rows.
  std::vector<CropOrigin::Document> explain(std::size_t set, std::uint64_t row);
  // The first token of such a row.
  std::uint64_t first_token(std::size_t set, std::uint64_t row);

 private:
  static constexpr std::size_t kUsualPieces = 16;  // of a packed row; more are reserved when needed

  // For the lookups of one thread.
  struct Side {
    std::unique_ptr<DocumentReader> reader;
    std::unique_ptr<PackCache> packs;
  };
  struct Set {
    std::uint64_t first_token = 0, tokens = 0;  // in the joined stream
    std::uint64_t first_row = 0;                // of its rows, counted through all sets
    std::optional<Separator> separator;         // with by_tokens_
    std::shared_ptr<const DocumentIndex> index;
    std::unique_ptr<CroppedDocuments> cropped;  // for DocumentOptions::crop_long
    std::unique_ptr<Packs> packs;
    Side reading, explaining, ahead;
  };
  // A piece of a row that is being read.
  struct Placed {
    std::uint64_t place = 0, stored = 0;  // in positions of the batch; in stored tokens
    std::uint32_t tokens = 0;
    bool last_of_stream = false;  // its last token has no successor
  };
  // The number of runs up to the end of a row.
  struct RunCounts {
    std::uint32_t tokens = 0, masks = 0;
  };
  struct Slot {
    Reservation share, more;
    std::size_t room = 0;  // pieces
    std::vector<JobRun> runs;
    std::vector<Placed> placed;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> padding;  // place, positions
    std::vector<RunCounts> row_ends;                               // for kBlocks
  };

  Set make_set(const WeightedTokens& weighted, std::size_t sets) const;
  void make_side(const Set& set, Side& side, std::size_t sets, std::size_t packs_held) const;
  void end_row(std::size_t slot);
  std::uint64_t turn() const {
    return options_.order == CropOrder::kBlocks && sets_.size() > 1 ? options_.blocks.streams : 1;
  }
  const Set& set_of(std::uint64_t row) const;
  void mark_by_index(const Set& set, std::uint64_t start, std::uint64_t document,
                     DocumentFields& fields) const;
  void mark_by_tokens(const Set& set, std::uint64_t start, const std::byte* stored,
                      DocumentFields& fields) const;
  // The pieces of a row of the set. For kWhole there is one, which is stored in `own`.
  std::span<const DocumentPiece> pieces_of(const Set& set, const Side& side, std::uint64_t row,
                                           bool counts, DocumentPiece& own);
  void count(const PackedWindow& window);
  DocumentFields fields_in(std::byte* memory) const;
  std::uint64_t usual_pieces() const { return batch_size_ * reads_of_row(); }
  void make_room(Slot& slot, std::size_t pieces);

  const LoaderOptions options_;
  const std::uint64_t batch_size_, columns_;
  const Layout& joined_;
  const Budget budget_;
  const DocumentsLayout layout_;
  // kMask, and no file has an index: documents are found in the rows, and no index is created.
  const bool by_tokens_;
  std::vector<Set> sets_;
  LossMasks masks_;
  std::deque<Slot> slots_;

  // Changed by the reading thread.
  StartCounts start_counts_;
  struct Counts {
    std::atomic<std::uint64_t> tokens = 0, places = 0, documents = 0, split = 0, cut = 0;
  };
  Counts counts_;
};

}  // namespace evenkeel
