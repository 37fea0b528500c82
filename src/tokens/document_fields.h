// What a batch says about documents: position_ids, document_ids, cu_seqlens and loss_mask.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/tokens.h"

namespace evenkeel {

// Writes the fields of one batch, in memory that documents_layout describes: `begin`, then for each
// row its documents in order, then `finish`. A value: several may write to several batches at once.
class DocumentFields {
 public:
  DocumentFields(const DocumentsLayout& layout, std::uint64_t rows, std::uint64_t columns,
                 const DocumentOptions& options, std::byte* memory);

  void begin();
  // Row `row` is the next. Its first document begins with it.
  void begin_row(std::uint64_t row) { begin_at(row * columns_); }
  // The same where rows differ in length: they begin at positions of the batch, which has `places`.
  void begin_at(std::uint64_t place) {
    row_begin_ = place;
    add(place);
  }
  void set_places(std::uint64_t places) { counts_[2] = static_cast<std::uint32_t>(places); }
  // Another document begins at this column (1 to columns), or, at `columns`, just after the row.
  void boundary(std::uint64_t column);
  // From this column on, the row is padding.
  void pad_from(std::uint64_t column);
  // The same in two parts: another document or another part of one begins at this column (1 to
  // columns - 1); and the target of this column does not count.
  void begin_piece(std::uint64_t column) { add(row_begin_ + column); }
  void leave_out(std::uint64_t column) { loss_mask_[row_begin_ + column] = 0; }
  // Fills what follows from the above, for all rows.
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
