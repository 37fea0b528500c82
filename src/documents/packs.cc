#include "documents/packs.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// Rows, indexed by the room that they have left.
class RowsByRoom {
 public:
  RowsByRoom(std::uint64_t rows, std::uint64_t columns)
      : room_(rows, static_cast<std::uint32_t>(columns)),
        next_(rows, kNone),
        heads_(columns + 1, kNone),
        present_(columns / 64 + 1) {
    for (std::uint64_t row = rows; row-- > 0;) add(static_cast<std::uint32_t>(row));
  }

  // `take_best` returns the row with the least room that is enough, `take_roomiest` the row with
  // the most room. kNone if there is none.
  static constexpr std::uint32_t kNone = UINT32_MAX;
  std::uint32_t take_best(std::uint32_t tokens) {
    std::size_t word = tokens / 64;
    std::uint64_t bits = present_[word] & (~std::uint64_t{0} << (tokens % 64));
    while (bits == 0) {
      if (++word == present_.size()) return kNone;
      bits = present_[word];
    }
    return take(word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
  }
  std::uint32_t take_roomiest() {
    for (std::size_t word = present_.size(); word-- > 0;) {
      if (present_[word] == 0) continue;
      return take(word * 64 + 63 - static_cast<std::size_t>(std::countl_zero(present_[word])));
    }
    return kNone;
  }
  std::uint32_t room(std::uint32_t row) const { return room_[row]; }
  void give_back(std::uint32_t row, std::uint32_t used) {
    room_[row] -= used;
    add(row);
  }
  static std::uint64_t memory(std::uint64_t rows, std::uint64_t columns) {
    return 8 * rows + 4 * (columns + 1) + 8 * (columns / 64 + 1);
  }

 private:
  void add(std::uint32_t row) {
    const std::uint32_t room = room_[row];
    if (room == 0) return;
    next_[row] = std::exchange(heads_[room], row);
    present_[room / 64] |= std::uint64_t{1} << (room % 64);
  }
  std::uint32_t take(std::size_t room) {
    const std::uint32_t row = heads_[room];
    heads_[room] = next_[row];
    if (heads_[room] == kNone) present_[room / 64] &= ~(std::uint64_t{1} << (room % 64));
    return row;
  }

  std::vector<std::uint32_t> room_, next_, heads_;
  std::vector<std::uint64_t> present_;
};

// The numbers of the pieces, longest first. Pieces of the same length are in stream order.
std::vector<std::uint32_t> longest_first(const std::vector<DocumentPiece>& pieces,
                                         std::uint64_t columns) {
  std::vector<std::uint32_t> place(columns + 2);  // the place of the first piece of each length
  for (const DocumentPiece& piece : pieces) ++place[columns - piece.tokens + 1];
  for (std::size_t i = 1; i < place.size(); ++i) place[i] += place[i - 1];
  std::vector<std::uint32_t> order(pieces.size());
  for (std::uint32_t i = 0; i < pieces.size(); ++i) order[place[columns - pieces[i].tokens]++] = i;
  return order;
}

// Chooses a row for each piece. A piece that is split becomes several; the new ones are appended.
// `split` counts the documents that would fit a row and were split.
std::vector<std::uint32_t> choose_rows(std::vector<DocumentPiece>& pieces, std::uint64_t rows,
                                       std::uint64_t columns, std::uint64_t& split) {
  RowsByRoom by_room(rows, columns);
  std::vector<std::uint32_t> chosen;
  chosen.reserve(pieces.capacity());
  chosen.resize(pieces.size());
  std::vector<std::uint32_t> left;
  for (const std::uint32_t i : longest_first(pieces, columns)) {
    const std::uint32_t row = by_room.take_best(pieces[i].tokens);
    if (row == RowsByRoom::kNone) {
      left.push_back(i);
      continue;
    }
    chosen[i] = row;
    by_room.give_back(row, pieces[i].tokens);
  }
  for (const std::uint32_t i : left) {
    DocumentPiece rest = pieces[i];
    split += rest.whole ? 1 : 0;
    rest.whole = false;
    for (bool first = true; rest.tokens > 0; first = false) {
      const std::uint32_t row = by_room.take_roomiest();
      DocumentPiece part = rest;
      part.tokens = std::min(rest.tokens, by_room.room(row));
      part.ends = rest.ends && part.tokens == rest.tokens;
      by_room.give_back(row, part.tokens);
      if (first) {
        pieces[i] = part;
        chosen[i] = row;
      } else {
        pieces.push_back(part);
        chosen.push_back(row);
      }
      rest.start += part.tokens;
      rest.tokens -= part.tokens;
    }
  }
  return chosen;
}

Error contradicting_index() {
  return Error(ErrorKind::kFormat, "documents", "offsets in the index of documents decrease")
      .hint("the index is damaged; write it again");
}

}  // namespace

Packs::Packs(const DocumentIndex& index, std::uint64_t columns, std::uint64_t window,
             const CroppedDocuments* cropped)
    : cropped_(cropped), tokens_(cropped ? cropped->tokens() : index.tokens()), columns_(columns) {
  const std::uint64_t each = columns * std::max<std::uint64_t>(window, 1);
  windows_ = std::max<std::uint64_t>(1, tokens_ / each);
  // The last piece of a window may end up to a row beyond it.
  const std::uint64_t most = tokens_ / windows_ + 1 + (columns - 1);
  window_rows_ = divide_up(most, columns);
  usual_pieces_ = most_pieces(index.size() / windows_ * 3 / 2 + 16, tokens_ / windows_ + 1);
}

// Splitting adds at most one piece for each row that it fills.
std::uint64_t Packs::most_pieces(std::uint64_t documents, std::uint64_t tokens) const {
  return documents + tokens / columns_ + 2 + window_rows_;
}

std::uint64_t Packs::rows_bytes(std::uint64_t pieces) const {
  return pieces * sizeof(DocumentPiece) + (window_rows_ + 1) * 4;
}

std::uint64_t Packs::working_bytes(std::uint64_t pieces) const {
  return pieces * (sizeof(DocumentPiece) + 12) + columns_ * 4 + window_rows_ * 4 +
         RowsByRoom::memory(window_rows_, columns_);
}

void Packs::find_pieces(std::uint64_t window, DocumentReader& reader,
                        std::vector<DocumentPiece>& pieces) const {
  const std::uint64_t begin = begin_of(window), end = begin_of(window + 1);
  std::uint64_t document = reader.locate(begin);
  std::uint64_t start = reader.start(document);
  for (; start < end; ++document) {
    const std::uint64_t next = reader.start(document + 1), length = next - start;
    if (next < start) throw contradicting_index();
    // If the document began before the window, start with its first piece that begins inside.
    std::uint64_t from = start < begin ? divide_up(begin - start, columns_) * columns_ : 0;
    for (; from < length && start + from < end; from += columns_) {
      const auto tokens = static_cast<std::uint32_t>(std::min(columns_, length - from));
      if (pieces.size() == pieces.capacity()) throw contradicting_index();
      pieces.push_back({start + from, tokens, length <= columns_, from + tokens == length});
    }
    if (document + 1 >= reader.index().size()) break;
    start = next;
  }
}

std::uint64_t Packs::find_cropped(std::uint64_t first, std::uint64_t end, DocumentReader& reader,
                                  std::vector<DocumentPiece>& pieces) const {
  std::uint64_t cut = 0;
  for (std::uint64_t document = first; document < end; ++document) {
    const std::uint64_t start = reader.start(document), next = reader.start(document + 1);
    if (next < start) throw contradicting_index();
    const std::uint64_t length = next - start, tokens = std::min(length, columns_);
    if (tokens == 0) continue;
    const bool all = tokens == length;
    if (pieces.size() == pieces.capacity()) throw contradicting_index();
    pieces.push_back({start, static_cast<std::uint32_t>(tokens), all, all});
    cut += length - tokens;
  }
  return cut;
}

PackedWindow Packs::pack(std::uint64_t window, DocumentReader& reader, const Budget& budget,
                         Reservation share, std::uint64_t working) const {
  const std::uint64_t begin = begin_of(window), end = begin_of(window + 1);
  const std::uint64_t first = cropped_ ? cropped_->first_from(begin, reader) : reader.locate(begin);
  const std::uint64_t after =
      cropped_ ? cropped_->first_from(end, reader) : reader.locate(end - 1) + 1;
  if (after < first) throw contradicting_index();
  const std::uint64_t most = most_pieces(after - first, end - begin);
  PackedWindow packed;
  packed.share_ = std::move(share);
  if (const std::uint64_t needed = rows_bytes(most); needed > packed.share_.bytes()) {
    packed.share_.release();
    packed.share_ = budget.reserve(needed, "packed rows");
  }
  const std::uint64_t needed = working_bytes(most);
  const Reservation more =
      budget.reserve(needed > working ? needed - working : 0, "packing of rows");
  std::vector<DocumentPiece> pieces;
  pieces.reserve(most);
  if (cropped_) {
    packed.cut_ = find_cropped(first, after, reader, pieces);
  } else {
    find_pieces(window, reader, pieces);
  }
  const std::size_t found = pieces.size();
  const std::vector<std::uint32_t> rows =
      choose_rows(pieces, window_rows_, columns_, packed.split_);

  packed.begins_.assign(window_rows_ + 1, 0);
  for (const std::uint32_t row : rows) ++packed.begins_[row + 1];
  for (std::uint64_t i = 1; i <= window_rows_; ++i) packed.begins_[i] += packed.begins_[i - 1];
  std::vector<std::uint32_t> next(packed.begins_.begin(), packed.begins_.end() - 1);
  packed.pieces_.resize(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) packed.pieces_[next[rows[i]]++] = pieces[i];
  if (pieces.size() == found) return packed;
  // Parts of split pieces were appended, so sort each row.
  for (std::uint64_t row = 0; row < window_rows_; ++row) {
    std::ranges::sort(packed.pieces_.begin() + packed.begins_[row],
                      packed.pieces_.begin() + packed.begins_[row + 1], {}, &DocumentPiece::start);
  }
  return packed;
}

PackTotals Packs::totals(const PackedWindow& window, std::uint64_t columns) {
  PackTotals totals{.places = window.rows() * columns, .split = window.split_};
  totals.documents = window.split_;
  totals.cut = window.cut_;
  for (const DocumentPiece& piece : window.pieces_) {
    totals.tokens += piece.tokens;
    totals.documents += piece.whole ? 1 : 0;
  }
  return totals;
}

PackCache::PackCache(const Packs& packs, DocumentReader& reader, const Budget& budget,
                     std::size_t most)
    : packs_(packs),
      reader_(reader),
      budget_(budget),
      most_(std::min<std::uint64_t>(most, packs.windows())) {
  try {
    working_ = budget_.reserve(packs_.usual_working_bytes(), "packing of rows");
    while (ready_.size() < most_) {
      ready_.push_back(budget_.reserve(packs_.usual_bytes(), "packed rows"));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;
    throw Error(error).hint("raise the budget, or use a smaller window or fewer mixed_windows");
  }
}

const PackedWindow* PackCache::find(std::uint64_t number) {
  for (Entry& entry : windows_) {
    if (entry.number != number) continue;
    entry.used = ++clock_;
    return entry.window.get();
  }
  return nullptr;
}

const PackedWindow& PackCache::make(std::uint64_t number) {
  while (windows_.size() >= most_) drop_oldest();
  for (;;) {
    Reservation share;
    if (!ready_.empty()) {
      share = std::move(ready_.back());
      ready_.pop_back();
    }
    try {
      auto packed = std::make_unique<PackedWindow>(
          packs_.pack(number, reader_, budget_, std::move(share), working_.bytes()));
      windows_.push_back({number, ++clock_, std::move(packed)});
      return *windows_.back().window;
    } catch (const Error& error) {
      // A window with unusually many documents takes the memory of others.
      if (error.kind() != ErrorKind::kBudget || (windows_.empty() && ready_.empty())) throw;
      if (ready_.empty()) drop_oldest();
    }
  }
}

void PackCache::drop_oldest() {
  std::swap(*std::ranges::min_element(windows_, {}, &Entry::used), windows_.back());
  Reservation& share = windows_.back().window->share_;
  if (share.bytes() == packs_.usual_bytes()) ready_.push_back(std::move(share));
  windows_.pop_back();
}

}  // namespace evenkeel
