// Packs whole documents into rows of the same length. docs/documents.md defines which row each
// document goes to.
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
  bool ends = true;   // the document ends with this piece
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
  std::uint64_t split_ = 0;  // split documents that would have fit a row
  std::uint64_t cut_ = 0;    // tokens of its documents that are left out
  Reservation share_;
  std::vector<DocumentPiece> pieces_;  // row by row
  std::vector<std::uint32_t> begins_;  // the first piece of each row, and the end
};

// Totals of packed rows.
struct PackTotals {
  std::uint64_t tokens = 0, places = 0;
  std::uint64_t documents = 0;  // documents that fit a row
  std::uint64_t split = 0;      // of these, documents that were split
  std::uint64_t cut = 0;        // tokens that were left out
};

// Documents are cut into pieces of at most `columns` tokens; most pieces are whole documents. The
// stream is divided into windows with the same number of tokens, and a window has the pieces that
// begin in it. Its pieces are packed into rows, longest first, each into the row that it fills
// best. Every window has the same number of rows, just enough for all of its tokens: a piece that
// does not fit any row is split over rows that have room. So the rows of a window depend on (data,
// columns, window) only, and nothing is lost. If documents are cropped, the same applies to the
// stream that remains of them. Immutable, so thread-safe.
class Packs {
 public:
  // About `window` rows of tokens are packed together. `cropped`, if it is not nullptr, must
  // outlive this object.
  Packs(const DocumentIndex& index, std::uint64_t columns, std::uint64_t window,
        const CroppedDocuments* cropped = nullptr);

  std::uint64_t windows() const { return windows_; }
  std::uint64_t window_rows() const { return window_rows_; }
  // Reserves memory from the budget; throws Error (kBudget). `share` was reserved for the rows of
  // the window before, and `working` bytes for packing. More is reserved if that is not enough.
  PackedWindow pack(std::uint64_t window, DocumentReader& reader, const Budget& budget,
                    Reservation share = {}, std::uint64_t working = 0) const;
  // The memory for a window with 1.5 times the average number of documents: for its rows, and for
  // packing it.
  std::uint64_t usual_bytes() const { return rows_bytes(usual_pieces_); }
  std::uint64_t usual_working_bytes() const { return working_bytes(usual_pieces_); }
  // Where a window begins in the stream. Its pieces begin there or later.
  std::uint64_t begin_of(std::uint64_t window) const {
    return static_cast<std::uint64_t>(static_cast<__uint128_t>(tokens_) * window / windows_);
  }
  static PackTotals totals(const PackedWindow& window, std::uint64_t columns);

 private:
  // Fills `pieces`. It is an error if there are more than its capacity.
  void find_pieces(std::uint64_t window, DocumentReader& reader,
                   std::vector<DocumentPiece>& pieces) const;
  // The same for documents `first` .. end - 1, cropped. Returns the number of tokens left out.
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

// A cache of the windows that were packed last. Not thread-safe. The constructor reserves memory
// for `most` usual windows, so that a loader does not run out of memory later; throws Error
// (kBudget).
class PackCache {
 public:
  PackCache(const Packs& packs, DocumentReader& reader, const Budget& budget, std::size_t most);
  // Returns a window, valid until the next call. Calls `packed` if the window had to be packed.
  template <class Packed>
  const PackedWindow& window(std::uint64_t number, Packed packed) {
    if (const PackedWindow* found = find(number)) return *found;
    const PackedWindow& made = make(number);
    packed(made);
    return made;
  }

 private:
  struct Entry {
    std::uint64_t number = 0, used = 0;  // `used`: the clock at its last use
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
  std::vector<Reservation> ready_;  // for future windows
  std::vector<Entry> windows_;
  std::uint64_t clock_ = 0;
};

}  // namespace evenkeel
