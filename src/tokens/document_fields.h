// The fields of a batch about documents: position_ids, document_ids, cu_seqlens and loss_mask.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/tokens.h"

namespace evenkeel {

// Writes the fields of one batch, in memory that documents_layout describes: call `begin`, then for
// each row its documents in order, then `finish`. Does not own the memory. Several objects may
// write to different batches at once.
class DocumentFields {
 public:
  DocumentFields(const DocumentsLayout& layout, std::uint64_t rows, std::uint64_t columns,
                 const DocumentOptions& options, std::byte* memory);

  void begin();
  // Begins row `row`. Its first document begins with the row.
  void begin_row(std::uint64_t row) { begin_at(row * columns_); }
  // The same for rows of different lengths, which begin at any position of the batch. `set_places`
  // sets the number of positions.
  void begin_at(std::uint64_t place) {
    row_begin_ = place;
    add(place);
  }
  void set_places(std::uint64_t places) { counts_[2] = static_cast<std::uint32_t>(places); }
  // Another document begins at this column (1 to columns), or, at `columns`, just after the row.
  void boundary(std::uint64_t column);
  // The row is padding from this column on.
  void pad_from(std::uint64_t column);
  // The two parts of `boundary`: another document, or another part of one, begins at this column (1
  // to columns - 1); and the target of this column does not count.
  void begin_piece(std::uint64_t column) { add(row_begin_ + column); }
  void leave_out(std::uint64_t column) { loss_mask_[row_begin_ + column] = 0; }
  // Fills the fields that follow from the calls above, for all rows.
  void finish();

 private:
  void add(std::uint64_t place);

  const DocumentsLayout& layout_;
  const std::uint64_t rows_, columns_;
  const DocumentOptions& options_;
  std::uint32_t* const counts_;  // documents, longest, positions
  std::int32_t* const position_ids_;
  std::int32_t* const document_ids_;
  std::int32_t* const cu_seqlens_;
  std::uint8_t* const loss_mask_;
  std::uint64_t row_begin_ = 0;
};

}  // namespace evenkeel
