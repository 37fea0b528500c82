#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "documents/document_index.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {

DocumentReader::DocumentReader(std::shared_ptr<const DocumentIndex> index, const Budget& budget,
                               std::uint64_t sharers)
    : index_(std::move(index)) {
  // A small share of the budget; a small index is cached as a whole.
  const std::uint64_t bytes = kEntries * sizeof(std::uint64_t);
  const std::uint64_t share = budget.limit() / 64 / std::max<std::uint64_t>(sharers, 1);
  const std::uint64_t most = std::clamp<std::uint64_t>(share / bytes, 16, 4096);
  while (sets_ * kWays < index_->blocks() && 2 * sets_ * kWays <= most) sets_ *= 2;
  const std::size_t frames = sets_ * kWays;
  together_ = std::min(kTogether, frames);
  while (index_->blocks() >> seen_shift_ >= kMostSeen) ++seen_shift_;
  const std::uint64_t seen = (index_->blocks() >> seen_shift_) + 1;
  memory_ = PageBuffer(budget,
                       (frames + together_) * bytes + frames * sizeof(Frame) + seen * sizeof(Seen) +
                           4 * kTogether * sizeof(Search),
                       "blocks of the document index");
  seen_.resize(seen);
  frames_ = reinterpret_cast<std::uint64_t*>(memory_.data());
  staging_ = frames_ + frames * kEntries;
  table_.resize(frames);
}

const std::uint64_t* DocumentReader::cached(std::uint64_t block) {
  const std::size_t set = block * 0x9e3779b97f4a7c15 >> 32 & (sets_ - 1);
  for (std::size_t i = set * kWays; i < (set + 1) * kWays; ++i) {
    if (table_[i].block != block) continue;
    table_[i].used = ++clock_;
    return frames_ + i * kEntries;
  }
  return nullptr;
}

std::uint64_t* DocumentReader::new_frame(std::uint64_t block) {
  const std::size_t set = block * 0x9e3779b97f4a7c15 >> 32 & (sets_ - 1);
  std::size_t oldest = set * kWays;
  for (std::size_t i = oldest; i < (set + 1) * kWays; ++i) {
    if (table_[i].used < table_[oldest].used) oldest = i;
  }
  table_[oldest] = {block, ++clock_};
  return frames_ + oldest * kEntries;
}

const DocumentReader::Part& DocumentReader::part_of_block(std::uint64_t block) const {
  const auto after = std::ranges::upper_bound(index_->parts_, block, {},
                                              [](const Part& p) { return p.first_block; });
  return *(after - 1);
}

void DocumentReader::read_numbers(std::size_t array, std::span<const std::uint64_t> rows,
                                  std::uint64_t count, std::uint64_t* out) {
  Array::Impl& numbers = *index_->arrays_[array];
  numbers.crops(rows, count, reinterpret_cast<std::byte*>(out));
  if (numbers.layout.row_bytes == 8) return;
  const auto* narrow = reinterpret_cast<const std::byte*>(out);
  for (std::uint64_t i = rows.size() * count; i-- > 0;) {
    std::uint32_t number;
    std::memcpy(&number, narrow + i * sizeof number, sizeof number);
    out[i] = number;
  }
}

void DocumentReader::read_megatron(const FileDocuments& file, std::uint64_t first,
                                   std::uint64_t count, std::uint64_t* out) {
  const std::uint64_t row = file.bounds_row + first;
  read_numbers(file.array, {&row, 1}, count, out);
  const std::uint32_t item_size = file.token_bytes;
  std::uint64_t last = 0, inside = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (out[i] > file.sequences || out[i] < last) {
      throw wrong_index(file.path, "document bound " + with_commas(first + i) + " is " +
                                       std::to_string(out[i]) + " of " +
                                       with_commas(file.sequences) +
                                       " sequences; the bound before it is " + with_commas(last));
    }
    last = out[i];
    if (out[i] < file.sequences) inside = i + 1;
  }
  if (inside > 0) {
    std::vector<std::uint64_t> rows(out, out + inside);
    for (std::uint64_t& one : rows) one += file.first_row;
    // Empty documents repeat a bound, so the first and the last one do not suffice.
    const auto gap = std::ranges::adjacent_find(
        rows, [](std::uint64_t one, std::uint64_t next) { return next != one + 1; });
    if (gap == rows.end()) {
      read_numbers(file.array, {rows.data(), 1}, inside, out);
    } else {
      read_numbers(file.array, rows, 1, out);
    }
  }
  for (std::uint64_t i = 0; i < inside; ++i) {
    if (out[i] % item_size != 0) {
      throw wrong_index(file.path, "document " + with_commas(first + i) + " begins at byte " +
                                       with_commas(out[i]) + ", inside a token");
    }
    out[i] /= item_size;
  }
  std::fill(out + inside, out + count, file.tokens);
}

void DocumentReader::read_block(const Part& part, std::uint64_t number, std::uint64_t* out) {
  const FileDocuments& file = part.file;
  const std::uint64_t first = number * kBlock;
  // Entries of the file from `first` on, including the one after the last document.
  const std::uint64_t count = std::min(kEntries, file.documents + 1 - first);
  std::fill(out + count, out + kEntries, file.tokens);
  if (file.kind == FileDocuments::Kind::kMegatron) return read_megatron(file, first, count, out);
  if (file.kind == FileDocuments::Kind::kStarts) {
    const std::uint64_t stored = std::min(count, file.documents - first);
    if (stored < count) out[stored] = file.tokens;
    const std::uint64_t row = file.first_row + first;
    if (stored > 0) read_numbers(file.array, {&row, 1}, stored, out);
    return;
  }
  // The file stores ends: entry i is end i-1, and entry 0 is 0.
  const std::uint64_t zero = first == 0 ? 1 : 0;
  if (zero) out[0] = 0;
  const std::uint64_t row = file.first_row + first - (1 - zero);
  if (count > zero) read_numbers(file.array, {&row, 1}, count - zero, out + zero);
}

void DocumentReader::check(const Part& part, std::uint64_t number,
                           const std::uint64_t* entries) const {
  const FileDocuments& file = part.file;
  std::uint64_t wrong = 0;  // without branches, because nearly all blocks are right
  for (std::uint64_t i = 0; i < kBlock; ++i) wrong |= entries[i] > entries[i + 1] ? 1 : 0;
  // The entry after the last document is the end of the file.
  const std::uint64_t last = file.documents - number * kBlock;
  if (last <= kBlock && entries[last] < file.tokens) {
    throw wrong_index(file.path, "documents end at token " + with_commas(entries[last]) +
                                     " of the " + with_commas(file.tokens) + " of the file")
        .hint("the index is damaged or belongs to another file; write it again");
  }
  if (wrong == 0 && entries[kBlock] <= file.tokens) return;
  for (std::uint64_t i = 0; i <= kBlock; ++i) {
    const std::string name = "document " + with_commas(number * kBlock + i);
    if (entries[i] > file.tokens) {
      throw wrong_index(file.path, name + " begins at token " + std::to_string(entries[i]) +
                                       ", beyond the " + with_commas(file.tokens) + " of the file")
          .hint("the index is damaged or belongs to another file; write it again");
    }
    if (i > 0 && entries[i] < entries[i - 1]) {
      throw wrong_index(file.path, name + " begins at token " + with_commas(entries[i]) +
                                       ", before the previous one, which begins at " +
                                       with_commas(entries[i - 1]))
          .hint("the index is damaged; write it again");
    }
  }
}

// Complete blocks of plain numbers are read together, so that the disk has many requests at once.
void DocumentReader::load(std::span<const std::uint64_t> blocks) {
  std::array<std::uint64_t, kTogether> rows, numbers;
  for (std::size_t at = 0; at < blocks.size();) {
    std::size_t together = 0;
    std::size_t array = 0;
    for (; at + together < blocks.size() && together < together_; ++together) {
      const std::uint64_t block = blocks[at + together];
      const Part& part = part_of_block(block);
      const FileDocuments& file = part.file;
      const std::uint64_t first = (block - part.first_block) * kBlock;
      const bool ends = file.kind == FileDocuments::Kind::kEnds;
      const std::uint64_t least = ends ? 1 : 0;
      const bool plain = file.kind != FileDocuments::Kind::kMegatron && first >= least &&
                         first + kEntries - least <= file.documents &&
                         (together == 0 || file.array == array);
      if (!plain) break;
      array = file.array;
      rows[together] = file.first_row + first - least;
      numbers[together] = block;
    }
    if (together > 0) {
      read_numbers(array, std::span(rows).first(together), kEntries, staging_);
      for (std::size_t i = 0; i < together; ++i) {
        const Part& part = part_of_block(numbers[i]);
        check(part, numbers[i] - part.first_block, staging_ + i * kEntries);
        seen_[numbers[i] >> seen_shift_] = {numbers[i], staging_[i * kEntries]};
        std::memcpy(new_frame(numbers[i]), staging_ + i * kEntries,
                    kEntries * sizeof(std::uint64_t));
      }
      at += together;
      continue;
    }
    const Part& part = part_of_block(blocks[at]);
    read_block(part, blocks[at] - part.first_block, staging_);
    check(part, blocks[at] - part.first_block, staging_);
    seen_[blocks[at] >> seen_shift_] = {blocks[at], staging_[0]};
    std::memcpy(new_frame(blocks[at]), staging_, kEntries * sizeof(std::uint64_t));
    ++at;
  }
}

const std::uint64_t* DocumentReader::block(const Part& part, std::uint64_t number) {
  const std::uint64_t id = part.first_block + number;
  if (const std::uint64_t* found = cached(id)) return found;
  load({&id, 1});
  return cached(id);
}

std::uint64_t DocumentReader::entry(const Part& part, std::uint64_t number) {
  return block(part, number / kBlock)[number % kBlock];
}

const DocumentReader::Part& DocumentReader::part_of_document(std::uint64_t document) {
  if (!last_part_ || document < last_part_->first_document ||
      document - last_part_->first_document >= last_part_->documents) {
    // A part without documents has the same first_document as the next part.
    const auto after = std::ranges::upper_bound(index_->parts_, document, {},
                                                [](const Part& p) { return p.first_document; });
    last_part_ = &*(after - 1);
  }
  return *last_part_;
}

std::size_t DocumentReader::load_blocks_of(std::span<const std::uint64_t> documents) {
  std::array<std::uint64_t, kTogether> missing;
  std::size_t count = 0, ready = 0;
  for (; ready < documents.size() && documents[ready] < index_->size(); ++ready) {
    const Part& part = part_of_document(documents[ready]);
    const std::uint64_t number = documents[ready] - part.first_document;
    if (part.head && number == 0) continue;
    const std::uint64_t entry = part.skipped_documents + number - (part.head ? 1 : 0);
    const std::uint64_t id = part.first_block + entry / kBlock;
    if ((count > 0 && missing[count - 1] == id) || cached(id)) continue;
    if (count == together_) break;
    missing[count++] = id;
  }
  if (count > 1) load(std::span(missing).first(count));
  return std::max<std::size_t>(ready, 1);
}

// Whether there are only a few documents per block, so that most of a block would be read for
// nothing.
bool DocumentReader::far_apart(std::span<const std::uint64_t> documents) {
  constexpr std::uint64_t kFew = 8;
  return documents.size() >= kFew &&
         (documents.back() - documents.front()) / documents.size() >= kBlock / kFew;
}

bool DocumentReader::read_pairs(const Part& part, std::span<std::uint64_t> entries,
                                std::uint64_t* out) {
  const FileDocuments& file = part.file;
  const bool megatron = file.kind == FileDocuments::Kind::kMegatron;
  const std::uint64_t row = megatron                                  ? file.bounds_row
                            : file.kind == FileDocuments::Kind::kEnds ? file.first_row - 1
                                                                      : file.first_row;
  for (std::uint64_t& entry : entries) entry += row;
  read_numbers(file.array, entries, 2, out);
  const std::span numbers(out, 2 * entries.size());
  if (megatron) {
    for (std::uint64_t& sequence : numbers) {
      if (sequence >= file.sequences) return false;
      sequence += file.first_row;
    }
    std::uint64_t* const rows = out + numbers.size();
    std::ranges::copy(numbers, rows);
    read_numbers(file.array, {rows, numbers.size()}, 1, out);
    for (std::uint64_t& pointer : numbers) {
      if (pointer % file.token_bytes != 0) return false;
      pointer /= file.token_bytes;
    }
  }
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    wrong |= numbers[i] > numbers[i + 1] || numbers[i + 1] > file.tokens ? 1 : 0;
  }
  return wrong == 0;
}

std::span<const DocumentReader::Bounds> DocumentReader::read_bounds(
    std::span<const std::uint64_t> documents, bool& plain) {
  // `staging_` has room for the results, the entries, and their numbers and rows.
  static_assert(sizeof(Bounds) == 3 * sizeof(std::uint64_t));
  const std::size_t most = std::min<std::size_t>(kPairs, together_ * kEntries / 8);
  const Part& part = part_of_document(documents.front());
  const std::uint64_t head = part.head ? 1 : 0;
  // Only entries whose two numbers are in the file, and whose documents end in the part.
  const std::uint64_t least = part.file.kind == FileDocuments::Kind::kEnds ? 1 : 0;
  auto* const found = reinterpret_cast<Bounds*>(staging_);
  std::uint64_t* const entries = staging_ + 3 * most;
  std::size_t count = 0;
  for (; count < std::min(most, documents.size()); ++count) {
    const std::uint64_t number = documents[count] - part.first_document;
    if (number < head || number + 1 >= part.documents) break;
    const std::uint64_t entry = part.skipped_documents + number - head;
    if (entry < least || entry + 2 > part.file.documents) break;
    entries[count] = entry;
  }
  std::uint64_t* const numbers = entries + most;
  if (count == 0) return {};
  plain = read_pairs(part, {entries, count}, numbers);
  if (!plain) return {};
  const auto in_stream = [&](std::uint64_t token) {
    return part.first_token + std::max(token, part.skipped_tokens) - part.skipped_tokens;
  };
  for (std::size_t i = 0; i < count; ++i) {
    found[i] = {documents[i], in_stream(numbers[2 * i]), in_stream(numbers[2 * i + 1])};
  }
  return {found, count};
}

DocumentReader::Bounds DocumentReader::bounds(std::uint64_t document) {
  const auto known = std::ranges::lower_bound(known_, document, {}, &Bounds::document);
  if (known != known_.end() && known->document == document) return *known;
  const std::uint64_t begin = start(document);
  return {document, begin, std::max(begin, start(document + 1))};
}

DocumentReader::Starts DocumentReader::starts_from(std::uint64_t document) {
  const Part& part = part_of_document(document);
  const std::uint64_t number = document - part.first_document, head = part.head ? 1 : 0;
  if (number < head) return {&part.first_token, 1, 0, 0};
  const std::uint64_t place = part.skipped_documents + number - head;
  const std::uint64_t* entries = block(part, place / kBlock) + place % kBlock;
  const std::uint64_t left = part.documents > number ? part.documents - number : 1;
  return {entries, std::min(kBlock - place % kBlock, left), part.first_token, part.skipped_tokens};
}

std::uint64_t DocumentReader::start(std::uint64_t document) {
  if (document >= index_->size()) return index_->tokens();
  const Part& part = part_of_document(document);
  std::uint64_t number = document - part.first_document;
  if (part.head && number-- == 0) return part.first_token;
  const std::uint64_t token = entry(part, part.skipped_documents + number);
  return part.first_token + std::max(token, part.skipped_tokens) - part.skipped_tokens;
}

}  // namespace evenkeel
