#include "tokens/document_batches.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "documents/find_tokens.h"
#include "evenkeel/error.h"
#include "tokens/crop_order.h"
#include "tokens/widen.h"

namespace evenkeel {
namespace {

Error wrong_documents(const std::string& what) {
  return Error(ErrorKind::kInvalid, "documents", what);
}

const LoaderOptions& checked_documents(const LoaderOptions& options) {
  const DocumentOptions& documents = options.documents;
  const auto places = checked_mul(options.batch_size, options.block_size);
  if (!places || *places > std::numeric_limits<std::int32_t>::max()) {
    throw wrong_documents("cu_seqlens is int32, and a batch of " + with_commas(options.batch_size) +
                          " x " + with_commas(options.block_size) +
                          " tokens has more than 2^31-1 positions")
        .hint("take a smaller batch_size");
  }
  if (documents.bos && documents.eos) {
    throw wrong_documents("bos and eos exclude each other; got both")
        .hint("bos: documents begin with it; eos: they end with it");
  }
  if (documents.most_documents > 0 && documents.most_documents < options.batch_size) {
    throw wrong_documents("most_documents is " + with_commas(documents.most_documents) +
                          ", but each of the " + with_commas(options.batch_size) +
                          " rows of a batch begins one");
  }
  if (documents.mode == DocumentMode::kPacked &&
      (documents.window == 0 || documents.mixed_windows == 0)) {
    throw wrong_documents("window and mixed_windows must be at least 1");
  }
  return options;
}

// The separator that all files of the set have, if none of them has an index.
std::optional<Separator> common_separator(const std::vector<TokenFileInfo>& files,
                                          const DocumentSource& source) {
  std::optional<Separator> common;
  for (const TokenFileInfo& file : files) {
    if (has_own_index(file)) return std::nullopt;
    const auto one = separator_of(file, source);
    if (!one || (common && (common->token != one->token || common->begins != one->begins))) {
      return std::nullopt;
    }
    common = one;
  }
  return common;
}

DocumentSource source_of(const DocumentOptions& options) {
  return {options.bos, options.eos, options.index};
}

bool all_have_separators(const std::vector<WeightedTokens>& sets, const LoaderOptions& options) {
  return std::ranges::all_of(sets, [&](const WeightedTokens& set) {
    return common_separator(TokenInternals::of(set.tokens).files, source_of(options.documents))
        .has_value();
  });
}

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

void require_pad(const LoaderOptions& options, DType stored) {
  const DType out = options.dtype.value_or(stored);
  const std::int64_t pad = options.documents.pad;
  if (options.documents.mode != DocumentMode::kPacked || can_hold(out, pad)) return;
  throw wrong_documents("pad is " + std::to_string(pad) + ", which does not fit " + out.name())
      .hint("take another pad, or another dtype");
}

}  // namespace

DocumentBatches::DocumentBatches(const std::vector<WeightedTokens>& sets,
                                 const LoaderOptions& options, const Layout& joined,
                                 const Budget& budget)
    : options_(checked_documents(options)),
      batch_size_(options.batch_size),
      columns_(options.block_size),
      joined_(joined),
      budget_(budget),
      layout_(documents_layout(batch_size_, columns_, options.documents.most_documents)),
      by_tokens_(options.documents.mode == DocumentMode::kMask &&
                 all_have_separators(sets, options)) {
  require_pad(options, joined.dtype);
  counting_ = PageBuffer(budget_, columns_ * sizeof(std::int32_t), "positions of documents");
  auto* const numbers = reinterpret_cast<std::int32_t*>(counting_.data());
  std::iota(numbers, numbers + columns_, 0);
  std::uint64_t token = 0, row = 0;
  for (const WeightedTokens& weighted : sets) {
    Set set = make_set(weighted, sets.size());
    set.first_token = std::exchange(token, token + set.tokens);
    sets_.push_back(std::move(set));
    sets_.back().first_row = std::exchange(row, row + rows(sets_.size() - 1));
  }
}

DocumentBatches::Set DocumentBatches::make_set(const WeightedTokens& weighted,
                                               std::size_t sets) const {
  const Tokens::Impl& tokens = TokenInternals::of(weighted.tokens);
  const DocumentOptions& documents = options_.documents;
  const DocumentSource source = source_of(documents);
  Set set;
  set.tokens = weighted.tokens.size();
  if (by_tokens_) {
    set.separator = common_separator(tokens.files, source);
    require_possible(*set.separator, joined_.dtype, tokens.files.front().path);
    return set;
  }
  if (!packed() && set.tokens <= columns_) return set;  // the order says what is wrong
  if (set.tokens == 0) throw wrong_documents("there are no tokens to pack");
  set.index = DocumentIndex::open(tokens.layout(), tokens.files, source, budget_);
  if (packed()) {
    set.packs = std::make_unique<Packs>(*set.index, columns_, documents.window);
  }
  for (Side* side : {&set.reading, &set.explaining}) {
    side->reader = std::make_unique<DocumentReader>(set.index, budget_, sets);
    if (!packed()) continue;
    const std::size_t held = side == &set.reading ? documents.mixed_windows : 1;
    side->packs = std::make_unique<PackCache>(*set.packs, *side->reader, budget_, held);
  }
  return set;
}

std::uint64_t DocumentBatches::rows(std::size_t set) const {
  const Set& one = sets_[set];
  return one.packs ? one.packs->windows() * one.packs->window_rows() : one.tokens;
}

std::string DocumentBatches::describe(std::size_t set) const {
  const DocumentOptions& documents = options_.documents;
  if (documents.mode == DocumentMode::kMask) return {};  // the same rows as without
  std::string text = " documents=" + std::string(document_mode_name(documents.mode));
  if (sets_[set].index) text += ":" + std::to_string(sets_[set].index->size());
  if (documents.mode == DocumentMode::kStart) {
    return text + (documents.use_leftovers ? " leftovers=use" : " leftovers=drop");
  }
  return text + " window=" + std::to_string(documents.window) + "x" +
         std::to_string(documents.mixed_windows);
}

std::unique_ptr<SampleOrder> DocumentBatches::order(std::size_t set, bool explaining) {
  Set& one = sets_[set];
  const std::uint64_t seed = seed_of_set(options_.seed, set);
  if (packed()) return pack_order(*one.packs, options_, seed);
  auto crops = std::make_unique<CropSequence>(one.tokens, columns_, options_.order, seed);
  if (options_.documents.mode == DocumentMode::kMask) return crops;
  return start_order(std::move(crops), *(explaining ? one.explaining : one.reading).reader,
                     columns_, options_.documents.use_leftovers,
                     explaining ? nullptr : &start_counts_);
}

const DocumentBatches::Set& DocumentBatches::set_of(std::uint64_t row) const {
  const auto after =
      std::ranges::upper_bound(sets_, row, {}, [](const Set& set) { return set.first_row; });
  return *(after - 1);
}

DocumentFields DocumentBatches::fields_in(std::byte* memory) const {
  return {layout_,
          batch_size_,
          columns_,
          options_.documents,
          reinterpret_cast<const std::int32_t*>(counting_.data()),
          memory};
}

std::uint64_t DocumentBatches::slot_bytes() const {
  if (!packed()) return 0;
  return batch_size_ * (kUsualPieces * (sizeof(JobRun) + sizeof(Placed) + 16) + 16);
}

void DocumentBatches::add_slot(const Budget& budget) {
  Slot& slot = slots_.emplace_back();
  if (!packed()) return;
  slot.share = budget.reserve(slot_bytes(), "pieces of packed rows");
  slot.room = batch_size_ * kUsualPieces;
  slot.runs.reserve(slot.room);
  slot.placed.reserve(slot.room);
  slot.padding.reserve(batch_size_);
}

void DocumentBatches::make_room(Slot& slot, std::size_t pieces) {
  if (pieces <= slot.room) return;
  const std::size_t room = std::max(pieces, 2 * slot.room);
  // The old lists live until the new ones are filled. The plan has a number for each piece, too.
  Reservation more = budget_.reserve(
      (room + slot.room) * (sizeof(JobRun) + sizeof(Placed) + 3 * sizeof(std::uint64_t)),
      "pieces of packed rows");
  slot.runs.reserve(room);
  slot.placed.reserve(room);
  slot.more = std::move(more);
  slot.room = room;
}

void DocumentBatches::mark_by_index(const Set& set, std::uint64_t start, std::uint64_t document,
                                    DocumentFields& fields) const {
  std::uint64_t last = start;  // empty documents begin where others do
  set.reading.reader->for_each_start(document + 1, [&](std::uint64_t begin) {
    if (begin > start + columns_ || begin >= set.tokens) return false;
    if (begin > last) fields.boundary(begin - start);
    last = begin;
    return true;
  });
}

void DocumentBatches::prepare(std::span<const std::uint64_t> rows, std::byte* memory) {
  if (by_tokens_) return;
  DocumentFields fields = fields_in(memory);
  fields.begin();
  std::vector<std::uint64_t> starts(1), found(1);
  const bool alone = sets_.size() == 1;
  if (alone) {
    starts.assign(rows.begin(), rows.end());
    found.resize(rows.size());
    sets_[0].reading.reader->locate(starts, found);
  }
  for (std::uint64_t i = 0; i < rows.size(); ++i) {
    const Set& set = set_of(rows[i]);
    const std::uint64_t start = rows[i] - set.first_row;
    fields.begin_row(i);
    mark_by_index(set, start, alone ? found[i] : set.reading.reader->locate(start), fields);
  }
}

void DocumentBatches::mark_by_tokens(const Set& set, std::uint64_t start, const std::byte* stored,
                                     DocumentFields& fields) const {
  const Separator& separator = *set.separator;
  const std::uint32_t size = joined_.dtype.size;
  // Column j begins a document if token j does, or if token j-1 ends one; column 0 always does.
  const std::byte* first = separator.begins ? stored + size : stored;
  if (separator.begins) {
    find_tokens(joined_.dtype, first, columns_, separator.token,
                [&](std::uint64_t i) { fields.boundary(i + 1); });
    return;
  }
  // A file begins a document also if the one before does not end with eos.
  const std::uint64_t begin = set.first_token + start;
  auto segment = std::ranges::upper_bound(joined_.segments, begin, {},
                                          [](const Segment& one) { return one.first_row; });
  const auto next_file = [&] {
    return segment == joined_.segments.end() ? UINT64_MAX : segment->first_row - begin;
  };
  find_tokens(joined_.dtype, first, columns_, separator.token, [&](std::uint64_t i) {
    for (; next_file() < i + 1; ++segment) fields.boundary(next_file());
    if (next_file() == i + 1) ++segment;
    if (start + i + 1 < set.tokens) fields.boundary(i + 1);
  });
  for (; next_file() <= columns_ && start + next_file() < set.tokens; ++segment) {
    fields.boundary(next_file());
  }
}

void DocumentBatches::finish(std::span<const std::uint64_t> rows, const std::byte* stored,
                             std::byte* memory) const {
  DocumentFields fields = fields_in(memory);
  if (by_tokens_) {
    fields.begin();
    for (std::uint64_t i = 0; i < rows.size(); ++i) {
      const Set& set = set_of(rows[i]);
      fields.begin_row(i);
      mark_by_tokens(set, rows[i] - set.first_row, stored + i * (columns_ + 1) * joined_.dtype.size,
                     fields);
    }
  }
  fields.finish();
}

std::span<const DocumentPiece> DocumentBatches::pieces_of(const Set& set, const Side& side,
                                                          std::uint64_t row, bool counts) {
  const std::uint64_t rows = set.packs->window_rows();
  const PackedWindow& window = side.packs->window(row / rows, [&](const PackedWindow& made) {
    if (!counts) return;
    const PackTotals totals = Packs::totals(made, columns_);
    counts_.tokens.fetch_add(totals.tokens, std::memory_order_relaxed);
    counts_.places.fetch_add(totals.places, std::memory_order_relaxed);
    counts_.documents.fetch_add(totals.documents, std::memory_order_relaxed);
    counts_.split.fetch_add(totals.split, std::memory_order_relaxed);
  });
  return window.row(row % rows);
}

std::span<const JobRun> DocumentBatches::runs(std::size_t slot, std::span<const std::uint64_t> rows,
                                              std::byte* memory, std::byte* stored) {
  Slot& mine = slots_[slot];
  mine.runs.clear();
  mine.placed.clear();
  mine.padding.clear();
  DocumentFields fields = fields_in(memory);
  fields.begin();
  const std::uint32_t size = joined_.dtype.size;
  for (std::uint64_t i = 0; i < rows.size(); ++i) {
    const Set& set = set_of(rows[i]);
    const auto pieces = pieces_of(set, set.reading, rows[i] - set.first_row, true);
    make_room(mine, mine.runs.size() + pieces.size());
    fields.begin_row(i);
    std::uint64_t column = 0, at = i * stored_row();
    for (const DocumentPiece& piece : pieces) {
      if (column > 0) fields.begin_piece(column);
      const bool last = piece.start + piece.tokens == set.tokens;
      mine.runs.push_back(
          {set.first_token + piece.start, piece.tokens + (last ? 0U : 1U), stored + at * size});
      mine.placed.push_back({i * columns_ + column, at, piece.tokens, last});
      column += piece.tokens;
      at += piece.tokens + 1;
      const bool crosses = piece.ends && !options_.documents.predict_first;
      if (last || crosses) fields.leave_out(column - 1);
    }
    fields.pad_from(column);
    if (column < columns_) mine.padding.emplace_back(i * columns_ + column, columns_ - column);
  }
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

Packing DocumentBatches::packing() const {
  const auto share = [](const std::atomic<std::uint64_t>& part, std::uint64_t all) {
    return all == 0 ? 0.0 : static_cast<double>(part.load()) / static_cast<double>(all);
  };
  Packing packing;
  const std::uint64_t places = counts_.places, tokens = counts_.tokens;
  if (places > 0)
    packing.padding = static_cast<double>(places - tokens) / static_cast<double>(places);
  packing.split = share(counts_.split, counts_.documents);
  packing.cut = share(start_counts_.skipped, start_counts_.looked_at);
  packing.inside = share(start_counts_.inside, start_counts_.rows);
  return packing;
}

std::uint64_t DocumentBatches::first_token(std::size_t set, std::uint64_t row) {
  if (!packed()) return row;
  const auto pieces = pieces_of(sets_[set], sets_[set].explaining, row, false);
  return pieces.empty() ? 0 : pieces.front().start;
}

std::vector<CropOrigin::Document> DocumentBatches::explain(std::size_t set, std::uint64_t row) {
  std::vector<CropOrigin::Document> shown;
  const Set& one = sets_[set];
  if (!one.index) return shown;
  DocumentReader& reader = *one.explaining.reader;
  const auto add = [&](std::uint64_t document, std::uint64_t start, std::uint64_t tokens) {
    shown.push_back({document, start - reader.start(document), start, tokens});
  };
  if (packed()) {
    for (const DocumentPiece& piece : pieces_of(one, one.explaining, row, false)) {
      add(reader.locate(piece.start), piece.start, piece.tokens);
    }
    return shown;
  }
  std::uint64_t document = reader.locate(row);
  for (std::uint64_t start = row; start < row + columns_;) {
    const std::uint64_t end = std::min(reader.start(document + 1), row + columns_);
    if (end > start) add(document, start, end - start);
    start = std::max(start, end);
    ++document;
  }
  return shown;
}

}  // namespace evenkeel
