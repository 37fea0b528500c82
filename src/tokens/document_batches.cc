#include "tokens/document_batches.h"

#include <algorithm>
#include <utility>

#include "documents/find_tokens.h"
#include "tokens/document_options.h"
#include "tokens/whole_order.h"

namespace evenkeel {

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
                 all_have_separators(sets, options)),
      masks_(sets, batch_size_ * columns_) {
  require_pad(options, joined.dtype);
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
  if (!in_pieces() && set.tokens <= columns_) return set;  // the order throws an error later
  if (set.tokens == 0) {
    throw wrong_documents(packed() ? "there are no tokens to pack" : "there are no tokens");
  }
  set.index = DocumentIndex::open(tokens.layout(), tokens.files, source, budget_);
  if (documents.crop_long && packed()) {
    DocumentReader reader(set.index, budget_, sets);
    set.cropped = std::make_unique<CroppedDocuments>(reader, columns_, budget_);
  }
  if (packed()) {
    set.packs = std::make_unique<Packs>(*set.index, columns_, documents.window, set.cropped.get());
  }
  make_side(set, set.reading, sets, documents.mixed_windows);
  make_side(set, set.explaining, sets, 1);
  return set;
}

void DocumentBatches::make_side(const Set& set, Side& side, std::size_t sets,
                                std::size_t packs_held) const {
  side.reader = std::make_unique<DocumentReader>(set.index, budget_, sets);
  if (!set.packs) return;
  side.packs = std::make_unique<PackCache>(*set.packs, *side.reader, budget_, packs_held);
}

void DocumentBatches::open_windows() {
  for (Set& set : sets_) {
    if (!set.index || set.ahead.reader) continue;
    make_side(set, set.ahead, sets_.size(), options_.documents.mixed_windows);
  }
}

std::uint64_t DocumentBatches::window_positions(std::size_t set) const {
  if (whole()) return WholeOrder::window_of(options_, sets_[set].index->size());
  const Packs& packs = *sets_[set].packs;
  return mixed_windows(packs, options_) * packs.window_rows();
}

std::uint64_t DocumentBatches::usual_tokens(std::size_t set, std::uint64_t positions) const {
  const Set& one = sets_[set];
  if (!in_pieces()) return std::min(one.tokens, positions * (columns_ + 1));
  const std::uint64_t documents = std::max<std::uint64_t>(one.index->size(), 1);
  const std::uint64_t mean = std::min(one.tokens / documents, columns_);
  const std::uint64_t row =
      whole() ? mean + mean / 8 : columns_ + documents * columns_ / one.tokens;
  return std::min(one.tokens, positions * (row + 2));
}

std::uint64_t DocumentBatches::usual_spans(std::size_t set, std::uint64_t positions) const {
  if (!packed()) return positions;
  const Set& one = sets_[set];
  return positions * (one.index->size() * columns_ / one.tokens + 2);
}

void DocumentBatches::for_each_span(std::size_t set, std::span<const std::uint64_t> rows,
                                    const std::function<void(std::uint64_t, std::uint64_t)>& use) {
  const Set& one = sets_[set];
  for (const std::uint64_t row : rows) {
    if (!in_pieces()) {
      use(row, columns_ + 1);
      continue;
    }
    DocumentPiece own;
    for (const DocumentPiece& piece : pieces_of(one, one.ahead, row, false, own)) {
      const bool last = piece.start + piece.tokens == one.tokens;
      use(piece.start, piece.tokens + (last ? 0U : 1U));
    }
  }
}

void DocumentBatches::copy_row(std::size_t slot, std::span<const std::uint64_t> rows, std::size_t i,
                               const DocumentWindowReader::Held& window, std::byte* stored) {
  const Set& set = set_of(rows[i]);
  const Slot& mine = slots_[slot];
  const RunCounts begin = i > 0 ? mine.row_ends[i - 1] : RunCounts{}, end = mine.row_ends[i];
  if (!in_pieces()) {
    window.copy_tokens(rows[i] - set.first_row, columns_ + 1,
                       stored + i * stored_row() * joined_.dtype.size);
  }
  for (std::uint32_t k = begin.tokens; k < end.tokens; ++k) {
    const JobRun& run = mine.runs[k];
    window.copy_tokens(run.start - set.first_token, run.count, run.out);
  }
  for (std::uint32_t k = begin.masks; k < end.masks; ++k) {
    const JobRun& run = masks_.runs(slot)[k];
    const auto first = masks_.first_of(static_cast<std::size_t>(&set - sets_.data()));
    window.copy_mask(run.start - *first, run.count, run.out);
  }
}

void DocumentBatches::end_row(std::size_t slot) {
  if (options_.order != CropOrder::kBlocks) return;
  Slot& mine = slots_[slot];
  const std::size_t masks = masks_.any() ? masks_.runs(slot).size() : 0;
  mine.row_ends.push_back(
      {static_cast<std::uint32_t>(mine.runs.size()), static_cast<std::uint32_t>(masks)});
}

std::uint64_t DocumentBatches::rows(std::size_t set) const {
  const Set& one = sets_[set];
  if (whole()) return one.index->size();
  return one.packs ? one.packs->windows() * one.packs->window_rows() : one.tokens;
}

std::string DocumentBatches::describe(std::size_t set) const {
  const DocumentOptions& documents = options_.documents;
  const std::string mask = masks_.fingerprint(set);
  std::string masked = mask.empty() ? "" : " loss_mask=(" + mask + ")";
  if (documents.mode == DocumentMode::kMask) return masked;  // the same rows as without
  std::string text = " documents=" + std::string(document_mode_name(documents.mode));
  if (sets_[set].index) text += ":" + std::to_string(sets_[set].index->size());
  if (documents.mode == DocumentMode::kStart) {
    return text + (documents.use_leftovers ? " leftovers=use" : " leftovers=drop") + masked;
  }
  text += " window=" + std::to_string(documents.window) + "x";
  if (whole()) {
    text += std::to_string(documents.bucket);
    if (options_.order == CropOrder::kBlocks) {
      text += " block=" + std::to_string(options_.blocks.block_rows);
    }
    return text + masked;
  }
  return text + std::to_string(documents.mixed_windows) +
         (documents.crop_long ? " long=crop" : "") + masked;
}

std::unique_ptr<SampleOrder> DocumentBatches::order(std::size_t set, OrderUse use,
                                                    std::unique_ptr<SampleOrder> crops) {
  Set& one = sets_[set];
  const std::uint64_t seed = seed_of_set(options_.seed, set);
  if (packed()) return pack_order(*one.packs, options_, seed, turn());
  if (options_.documents.mode == DocumentMode::kMask) return crops;
  const Side& side = use == OrderUse::kReading      ? one.reading
                     : use == OrderUse::kExplaining ? one.explaining
                                                    : one.ahead;
  if (whole()) {
    return std::make_unique<WholeOrder>(*side.reader, options_, seed, turn(), budget_);
  }
  return start_order(std::move(crops), *side.reader, columns_, options_.documents.use_leftovers,
                     use == OrderUse::kReading ? &start_counts_ : nullptr);
}

const DocumentBatches::Set& DocumentBatches::set_of(std::uint64_t row) const {
  const auto after =
      std::ranges::upper_bound(sets_, row, {}, [](const Set& set) { return set.first_row; });
  return *(after - 1);
}

DocumentFields DocumentBatches::fields_in(std::byte* memory) const {
  return {layout_, batch_size_, columns_, options_.documents, memory};
}

void DocumentBatches::mark_by_index(const Set& set, std::uint64_t start, std::uint64_t document,
                                    DocumentFields& fields) const {
  std::uint64_t last = start;  // skips empty documents, which begin at the same token as others
  set.reading.reader->for_each_start(document + 1, [&](std::uint64_t begin) {
    if (begin > start + columns_ || begin >= set.tokens) return false;
    if (begin > last) fields.boundary(begin - start);
    last = begin;
    return true;
  });
}

void DocumentBatches::prepare(std::size_t slot, std::span<const std::uint64_t> rows,
                              std::byte* memory) {
  slots_[slot].row_ends.clear();
  if (masks_.any()) masks_.begin(slot);
  for (std::uint64_t i = 0; i < rows.size(); ++i) {
    if (masks_.any()) {
      const Set& set = set_of(rows[i]);
      masks_.add(slot, static_cast<std::size_t>(&set - sets_.data()), rows[i] - set.first_row + 1,
                 columns_, i * columns_);
    }
    end_row(slot);
  }
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
  fields.finish();
}

void DocumentBatches::mark_by_tokens(const Set& set, std::uint64_t start, const std::byte* stored,
                                     DocumentFields& fields) const {
  const Separator& separator = *set.separator;
  const std::uint32_t size = joined_.dtype.size;
  // A document begins at column j if token j is bos, or token j-1 is eos. One always begins at
  // column 0.
  const std::byte* first = separator.begins ? stored + size : stored;
  if (separator.begins) {
    find_tokens(joined_.dtype, first, columns_, separator.token,
                [&](std::uint64_t i) { fields.boundary(i + 1); });
    return;
  }
  // A document also begins with each file, even if the file before it does not end with eos.
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

void DocumentBatches::finish(std::size_t slot, std::span<const std::uint64_t> rows,
                             const std::byte* stored, std::byte* memory) const {
  if (by_tokens_) {
    DocumentFields fields = fields_in(memory);
    fields.begin();
    for (std::uint64_t i = 0; i < rows.size(); ++i) {
      const Set& set = set_of(rows[i]);
      fields.begin_row(i);
      mark_by_tokens(set, rows[i] - set.first_row, stored + i * (columns_ + 1) * joined_.dtype.size,
                     fields);
    }
    fields.finish();
  }
  if (masks_.any()) {
    masks_.apply(slot, reinterpret_cast<std::uint8_t*>(memory + layout_.loss_mask));
  }
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
  packing.cut = in_pieces() ? share(counts_.cut, counts_.cut + tokens)
                            : share(start_counts_.skipped, start_counts_.looked_at);
  packing.inside = share(start_counts_.inside, start_counts_.rows);
  return packing;
}

std::uint64_t DocumentBatches::first_token(std::size_t set, std::uint64_t row) {
  if (!in_pieces()) return row;
  DocumentPiece own;
  const auto pieces = pieces_of(sets_[set], sets_[set].explaining, row, false, own);
  if (!pieces.empty()) return pieces.front().start;
  // An empty document may be the last one of the stream.
  return whole() ? std::min(own.start, sets_[set].tokens - 1) : 0;
}

std::vector<CropOrigin::Document> DocumentBatches::explain(std::size_t set, std::uint64_t row) {
  std::vector<CropOrigin::Document> shown;
  const Set& one = sets_[set];
  if (!one.index) return shown;
  DocumentReader& reader = *one.explaining.reader;
  const auto add = [&](std::uint64_t document, std::uint64_t start, std::uint64_t tokens) {
    shown.push_back({document, start - reader.start(document), start, tokens});
  };
  if (whole()) {
    DocumentPiece own;
    pieces_of(one, one.explaining, row, false, own);
    add(row, own.start, own.tokens);
    return shown;
  }
  if (packed()) {
    DocumentPiece own;
    for (const DocumentPiece& piece : pieces_of(one, one.explaining, row, false, own)) {
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
