// What a token loader does about documents: it looks them up, chooses rows by them, and fills the
// fields of a batch that tell where they begin.
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

// `order`, `prepare`, `job` and `finish` are for the reading side: `prepare` and `job` one call at
// a time, also with the orders; `finish` one call at a time for each slot. `explain` and the orders
// that are made with `explaining` are for another thread.
class DocumentBatches {
 public:
  // Finds indexes of documents, and makes those that are missing: this may take as long as reading
  // the files does. Throws Error.
  DocumentBatches(const std::vector<WeightedTokens>& sets, const LoaderOptions& options,
                  const Layout& joined, const Budget& budget);

  bool packed() const { return options_.documents.mode == DocumentMode::kPacked; }
  bool whole() const { return options_.documents.mode == DocumentMode::kWhole; }
  // Rows are made of pieces of documents: `runs` says what is to be read, not `prepare`.
  bool in_pieces() const { return packed() || whole(); }
  const DocumentsLayout& layout() const { return layout_; }
  // Tokens as stored that a row needs room for, at most.
  std::uint64_t stored_row() const { return packed() ? 2 * columns_ : columns_ + 1; }
  std::uint64_t reads_of_row() const { return packed() ? kUsualPieces : 1; }
  std::string describe(std::size_t set) const;  // for states
  // Of kWhole: all positions of the batch whose fields these are.
  static std::uint64_t places(const std::byte* fields) {
    return reinterpret_cast<const std::uint32_t*>(fields)[2];
  }

  // The order of one set, and how many rows it numbers. `crops` are those that kMask and kStart
  // begin with.
  enum class OrderUse { kReading, kExplaining, kWindows };
  std::unique_ptr<SampleOrder> order(std::size_t set, OrderUse use,
                                     std::unique_ptr<SampleOrder> crops);
  std::uint64_t rows(std::size_t set) const;

  // Of kBlocks, where batches are copied out of windows that another thread reads. Before orders
  // are made with kWindows:
  void open_windows();
  // A reader of windows, but for its order; `in_pieces` alone has its own windows. `positions` is
  // how many of a window this rank has at most.
  std::uint64_t window_positions(std::size_t set) const;
  std::uint64_t usual_tokens(std::size_t set, std::uint64_t positions) const;
  std::uint64_t usual_spans(std::size_t set, std::uint64_t positions) const;
  std::uint64_t first_token_of(std::size_t set) const { return sets_[set].first_token; }
  std::optional<std::uint64_t> first_mask_of(std::size_t set) const { return masks_.first_of(set); }
  // Tokens of the set that its rows need, as (first, count). For the thread that reads windows.
  void for_each_span(std::size_t set, std::span<const std::uint64_t> rows,
                     const std::function<void(std::uint64_t, std::uint64_t)>& use);
  // Instead of reading, after `prepare` or `runs`: copies what row i of the batch needs.
  void copy_row(std::size_t slot, std::span<const std::uint64_t> rows, std::size_t i,
                const DocumentWindowReader::Held& window, std::byte* stored);

  void add_slot(const Budget& budget);
  std::uint64_t slot_bytes() const;
  void keep_slots(std::size_t count) {
    slots_.resize(std::min(count, slots_.size()));
    masks_.keep_slots(count);
  }

  // Looks up the documents of a batch; `fields` is where its fields go. With `in_pieces`, also what
  // is to be read: `runs`, to be laid from `stored` on.
  void prepare(std::size_t slot, std::span<const std::uint64_t> rows, std::byte* fields);
  std::span<const JobRun> runs(std::size_t slot, std::span<const std::uint64_t> rows,
                               std::byte* fields, std::byte* stored);
  // The array of loss masks, if there is one, and what is to be read of it. After `prepare` or
  // `runs`.
  const std::shared_ptr<Array::Impl>& mask_array() const { return masks_.array(); }
  Job& mask_job(std::size_t slot) { return masks_.job(slot); }
  // Everything was read. Fills the fields, but for x and y.
  void finish(std::size_t slot, std::span<const std::uint64_t> rows, const std::byte* stored,
              std::byte* fields) const;
  // With `in_pieces`, makes x and y. False: a token does not fit `out`.
  bool widen_pieces(std::size_t slot, std::byte* stored, DType out, std::byte* x,
                    std::byte* y) const;

  Packing packing() const;
  // What a row of the joined stream, as an order gives it, shows of documents.
  std::vector<CropOrigin::Document> explain(std::size_t set, std::uint64_t row);
  // Its first token.
  std::uint64_t first_token(std::size_t set, std::uint64_t row);

 private:
  static constexpr std::size_t kUsualPieces = 16;  // of a packed row: more take memory as they come

  // Lookups of one thread.
  struct Side {
    std::unique_ptr<DocumentReader> reader;
    std::unique_ptr<PackCache> packs;
  };
  struct Set {
    std::uint64_t first_token = 0, tokens = 0;  // in the joined stream
    std::uint64_t first_row = 0;                // of what its order gives, in all sets
    std::optional<Separator> separator;         // with by_tokens_
    std::shared_ptr<const DocumentIndex> index;
    std::unique_ptr<CroppedDocuments> cropped;  // of DocumentOptions::crop_long
    std::unique_ptr<Packs> packs;
    Side reading, explaining, ahead;
  };
  // A piece of a row on its way.
  struct Placed {
    std::uint64_t place = 0, stored = 0;  // in the batch's positions; in stored tokens
    std::uint32_t tokens = 0;
    bool last_of_stream = false;  // its last token has no successor
  };
  // Runs up to the end of a row.
  struct RunCounts {
    std::uint32_t tokens = 0, masks = 0;
  };
  struct Slot {
    Reservation share, more;
    std::size_t room = 0;  // pieces
    std::vector<JobRun> runs;
    std::vector<Placed> placed;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> padding;  // place, positions
    std::vector<RunCounts> row_ends;                               // of kBlocks
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
  // Of a row of the set. Of kWhole, one piece, which is laid in `own`.
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
  // kMask where no file has an index: documents are found in the rows, and no index is made.
  const bool by_tokens_;
  std::vector<Set> sets_;
  LossMasks masks_;
  std::deque<Slot> slots_;

  // Of the reading side.
  StartCounts start_counts_;
  struct Counts {
    std::atomic<std::uint64_t> tokens = 0, places = 0, documents = 0, split = 0, cut = 0;
  };
  Counts counts_;
};

}  // namespace evenkeel
