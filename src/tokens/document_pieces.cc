// Rows that are made of pieces of documents: what is read for them, and how x and y are filled.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tokens/document_batches.h"
#include "tokens/widen.h"

namespace evenkeel {
namespace {

template <class T>
void fill_as(std::byte* out, std::uint64_t count, std::int64_t value) {
  const auto number = static_cast<T>(value);
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(out + i * sizeof(T), &number, sizeof(T));
}

void fill_tokens(DType type, std::byte* out, std::uint64_t count, std::int64_t value) {
  switch (type.size) {
    case 1:
      return fill_as<std::uint8_t>(out, count, value);
    case 2:
      return fill_as<std::uint16_t>(out, count, value);
    case 4:
      return fill_as<std::uint32_t>(out, count, value);
    default:
      return fill_as<std::uint64_t>(out, count, value);
  }
}

}  // namespace

std::uint64_t DocumentBatches::slot_bytes() const {
  std::uint64_t bytes = masks_.slot_bytes(usual_pieces());
  if (options_.order == CropOrder::kBlocks) bytes += batch_size_ * sizeof(RunCounts);
  if (!in_pieces()) return bytes;
  return bytes + usual_pieces() * (sizeof(JobRun) + sizeof(Placed) + 16) + batch_size_ * 16;
}

void DocumentBatches::add_slot(const Budget& budget) {
  masks_.add_slot(budget, usual_pieces());
  Slot& slot = slots_.emplace_back();
  slot.share = budget.reserve(slot_bytes() - masks_.slot_bytes(usual_pieces()), "pieces of rows");
  if (options_.order == CropOrder::kBlocks) slot.row_ends.reserve(batch_size_);
  if (!in_pieces()) return;
  slot.room = usual_pieces();
  slot.runs.reserve(slot.room);
  slot.placed.reserve(slot.room);
  slot.padding.reserve(batch_size_);
}

void DocumentBatches::make_room(Slot& slot, std::size_t pieces) {
  if (pieces <= slot.room) return;
  const std::size_t room = std::max(pieces, 2 * slot.room);
  // The old lists exist until the new ones are filled. The plan has a number for each piece, too.
  Reservation more = budget_.reserve(
      (room + slot.room) * (sizeof(JobRun) + sizeof(Placed) + 3 * sizeof(std::uint64_t)),
      "pieces of rows");
  slot.runs.reserve(room);
  slot.placed.reserve(room);
  slot.more = std::move(more);
  slot.room = room;
}

void DocumentBatches::count(const PackedWindow& window) {
  const PackTotals totals = Packs::totals(window, columns_);
  counts_.tokens.fetch_add(totals.tokens, std::memory_order_relaxed);
  counts_.places.fetch_add(totals.places, std::memory_order_relaxed);
  counts_.documents.fetch_add(totals.documents, std::memory_order_relaxed);
  counts_.split.fetch_add(totals.split, std::memory_order_relaxed);
  counts_.cut.fetch_add(totals.cut, std::memory_order_relaxed);
}

std::span<const DocumentPiece> DocumentBatches::pieces_of(const Set& set, const Side& side,
                                                          std::uint64_t row, bool counts,
                                                          DocumentPiece& own) {
  if (whole()) {
    const auto [document, start, end] = side.reader->bounds(row);
    const std::uint64_t length = end - start;
    const std::uint64_t tokens = std::min(length, columns_);
    own = {start, static_cast<std::uint32_t>(tokens), tokens == length, tokens == length};
    if (counts) {
      counts_.tokens.fetch_add(tokens, std::memory_order_relaxed);
      counts_.places.fetch_add(tokens, std::memory_order_relaxed);
      counts_.cut.fetch_add(length - tokens, std::memory_order_relaxed);
    }
    return {&own, tokens > 0 ? 1U : 0U};
  }
  const std::uint64_t rows = set.packs->window_rows();
  const PackedWindow& window = side.packs->window(row / rows, [&](const PackedWindow& made) {
    if (counts) count(made);
  });
  return window.row(row % rows);
}

std::span<const JobRun> DocumentBatches::runs(std::size_t slot, std::span<const std::uint64_t> rows,
                                              std::byte* memory, std::byte* stored) {
  Slot& mine = slots_[slot];
  mine.runs.clear();
  mine.placed.clear();
  mine.padding.clear();
  mine.row_ends.clear();
  if (masks_.any()) masks_.begin(slot);
  DocumentFields fields = fields_in(memory);
  fields.begin();
  const std::uint32_t size = joined_.dtype.size;
  std::uint64_t row_begin = 0;  // position in the batch
  for (std::uint64_t i = 0; i < rows.size(); ++i) {
    const Set& set = set_of(rows[i]);
    DocumentPiece own;
    const auto pieces = pieces_of(set, set.reading, rows[i] - set.first_row, true, own);
    if (whole() && pieces.empty()) {
      end_row(slot);
      continue;
    }
    make_room(mine, mine.runs.size() + pieces.size());
    if (!whole()) row_begin = i * columns_;
    fields.begin_at(row_begin);
    std::uint64_t column = 0, at = i * stored_row();
    for (const DocumentPiece& piece : pieces) {
      if (column > 0) fields.begin_piece(column);
      const bool last = piece.start + piece.tokens == set.tokens;
      mine.runs.push_back(
          {set.first_token + piece.start, piece.tokens + (last ? 0U : 1U), stored + at * size});
      mine.placed.push_back({row_begin + column, at, piece.tokens, last});
      if (masks_.any()) {
        masks_.add(slot, static_cast<std::size_t>(&set - sets_.data()), piece.start + 1,
                   piece.tokens - (last ? 1U : 0U), row_begin + column);
      }
      column += piece.tokens;
      at += piece.tokens + 1;
      const bool crosses = piece.ends && !options_.documents.predict_first;
      if (last || crosses) fields.leave_out(column - 1);
    }
    end_row(slot);
    if (whole()) {
      row_begin += column;
      continue;
    }
    fields.pad_from(column);
    if (column < columns_) mine.padding.emplace_back(row_begin + column, columns_ - column);
  }
  if (whole()) fields.set_places(row_begin);
  fields.finish();
  return mine.runs;
}

bool DocumentBatches::widen_pieces(std::size_t slot, std::byte* stored, DType out, std::byte* x,
                                   std::byte* y) const {
  const Slot& mine = slots_[slot];
  const std::uint32_t size = joined_.dtype.size;
  for (const Placed& piece : mine.placed) {
    std::byte* const tokens = stored + piece.stored * size;
    if (piece.last_of_stream) {
      std::byte* const after = tokens + std::uint64_t{piece.tokens} * size;
      std::memcpy(after, after - size, size);
    }
    if (!widen_xy(joined_.dtype, tokens, piece.tokens, out, x + piece.place * out.size,
                  y + piece.place * out.size)) {
      return false;
    }
  }
  for (const auto& [place, positions] : mine.padding) {
    fill_tokens(out, x + place * out.size, positions, options_.documents.pad);
    fill_tokens(out, y + place * out.size, positions, options_.documents.pad);
  }
  return true;
}

}  // namespace evenkeel
