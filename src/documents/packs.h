// Whole documents packed into rows of one length. docs/documents.md defines which go where.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "documents/cropped_documents.h"
#include "documents/document_index.h"
#include "evenkeel/budget.h"

namespace evenkeel {

// A document, or a part of one.
struct DocumentPiece {
  std::uint64_t start = 0;  // its first token in the stream
  std::uint32_t tokens = 0;
  bool whole = true;  // false: the document was split, here or before
  bool ends = true;   // the document ends with it
};

// The rows of one window.
class PackedWindow {
 public:
  std::span<const DocumentPiece> row(std::uint64_t row) const {
    return std::span(pieces_).subspan(begins_[row], begins_[row + 1] - begins_[row]);
  }
  std::uint64_t rows() const { return begins_.size() - 1; }

 private:
  friend class Packs;
  friend class PackCache;
  std::uint64_t split_ = 0;  // documents that would have fitted a row
  std::uint64_t cut_ = 0;    // tokens of its documents that are left out
  Reservation share_;
  std::vector<DocumentPiece> pieces_;  // row by row
  std::vector<std::uint32_t> begins_;  // of each row, and the end
};

// What was packed so far.
struct PackTotals {
  std::uint64_t tokens = 0, places = 0;
  std::uint64_t documents = 0;  // that fit a row
  std::uint64_t split = 0;      // of these
  std::uint64_t cut = 0;        // tokens
};

// Documents are cut into pieces of `columns` tokens, most of which are whole documents. A window is
// the pieces that begin in an equal share of the stream's tokens. Its pieces are packed into rows,
// longest first, each into the row that it fills best. Every window has the same number of rows,
// just enough to hold all of its tokens: what does not fit any row is split over those that have
// room. So the rows of a window follow from (data, columns, window) alone, and nothing is lost.
// Where documents are cropped, the same holds for the stream that is left of them.
class Packs {
 public:
  // `window` rows of tokens are packed together, about. `cropped`, if there is one, must outlive
  // it.
  Packs(const DocumentIndex& index, std::uint64_t columns, std::uint64_t window,
        const CroppedDocuments* cropped = nullptr);

  std::uint64_t windows() const { return windows_; }
  std::uint64_t window_rows() const { return window_rows_; }
  // Memory comes from the budget: Error (kBudget). `share` is what was reserved for the window's
  // rows before, and `working` for packing any; more is reserved where that is too little.
  PackedWindow pack(std::uint64_t window, DocumentReader& reader, const Budget& budget,
                    Reservation share = {}, std::uint64_t working = 0) const;
  // Bytes of the rows of a window with half as many documents more than the average, and of packing
  // it.
  std::uint64_t usual_bytes() const { return rows_bytes(usual_pieces_); }
  std::uint64_t usual_working_bytes() const { return working_bytes(usual_pieces_); }
  // Where a window begins in the stream: those of its pieces begin from here on.
  std::uint64_t begin_of(std::uint64_t window) const {
    return static_cast<std::uint64_t>(static_cast<__uint128_t>(tokens_) * window / windows_);
  }
  static PackTotals totals(const PackedWindow& window, std::uint64_t columns);

 private:
  // Fills `pieces` up to its capacity; more than that is an error.
  void find_pieces(std::uint64_t window, DocumentReader& reader,
                   std::vector<DocumentPiece>& pieces) const;
  // The same of documents `first` .. end - 1, cropped. Returns the tokens that are left out.
  std::uint64_t find_cropped(std::uint64_t first, std::uint64_t end, DocumentReader& reader,
                             std::vector<DocumentPiece>& pieces) const;
  std::uint64_t most_pieces(std::uint64_t documents, std::uint64_t tokens) const;
  std::uint64_t rows_bytes(std::uint64_t pieces) const;
  std::uint64_t working_bytes(std::uint64_t pieces) const;

  const CroppedDocuments* const cropped_;
  const std::uint64_t tokens_, columns_;  // of the stream that is packed
  std::uint64_t usual_pieces_ = 0;
  std::uint64_t windows_ = 1, window_rows_ = 1;
};

// Windows that were packed last. One thread at a time. Memory for `most` usual windows is reserved
// at once, so that a loader that was made does not run out of it: Error (kBudget).
class PackCache {
 public:
  PackCache(const Packs& packs, DocumentReader& reader, const Budget& budget, std::size_t most);
  // Valid until the next call. `packed` is called with each window that is packed.
  template <class Packed>
  const PackedWindow& window(std::uint64_t number, Packed packed) {
    if (const PackedWindow* found = find(number)) return *found;
    const PackedWindow& made = make(number);
    packed(made);
    return made;
  }

 private:
  struct Held {
    std::uint64_t number = 0, used = 0;  // when it was used last
    std::unique_ptr<PackedWindow> window;
  };
  const PackedWindow* find(std::uint64_t number);
  const PackedWindow& make(std::uint64_t number);
  void drop_oldest();

  const Packs& packs_;
  DocumentReader& reader_;
  const Budget budget_;
  const std::size_t most_;
  Reservation working_;
  std::vector<Reservation> ready_;  // for windows to come
  std::vector<Held> windows_;
  std::uint64_t clock_ = 0;
};

}  // namespace evenkeel
