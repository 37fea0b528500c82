// Finds the document that contains a token. Searches read the blocks of the index that they need.
#include <algorithm>
#include <array>
#include <utility>

#include "documents/document_index.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {

DocumentReader::Search DocumentReader::search_for(const Part& part, std::uint64_t token) const {
  Search search{.part = &part, .token = token};
  search.highest = part.blocks - 1;
  search.highest_value = part.file.tokens;
  return search;
}

namespace {

constexpr std::uint64_t kNear = 64;  // numbers around a guess that are searched first
constexpr std::uint64_t kLine = 8;   // numbers in a cache line

// Where to search for `value` first, among `count` ascending numbers that are followed by `next`:
// documents are usually spread evenly. The result is a multiple of a cache line.
std::uint64_t near_begin(const std::uint64_t* numbers, std::uint64_t count, std::uint64_t next,
                         std::uint64_t value) {
  if (count <= kNear || next <= numbers[0]) return 0;
  const double part = static_cast<double>(value - numbers[0]) /
                      static_cast<double>(next - numbers[0]) * static_cast<double>(count);
  const auto place = static_cast<std::uint64_t>(part);
  return place <= kNear / 2 ? 0 : std::min(place - kNear / 2, count - kNear) / kLine * kLine;
}

// The last of `count` ascending numbers that is at most `value`. The first one must be. Without
// branches, because they would be mispredicted.
std::uint64_t last_up_to(const std::uint64_t* numbers, std::uint64_t count, std::uint64_t value) {
  const std::uint64_t* first = numbers;
  while (count > 1) {
    const std::uint64_t half = count / 2;
    first += first[half] <= value ? half : 0;
    count -= half;
  }
  return static_cast<std::uint64_t>(first - numbers);
}

}  // namespace

// Guesses are interpolated: documents are usually spread so evenly that two or three blocks are
// enough. Every third guess bisects, for documents that are not.
bool DocumentReader::advance(Search& search, const std::uint64_t* entries) {
  const std::uint64_t first = entries[0], next = entries[kBlock];
  const bool last = search.guess + 1 == search.part->blocks;
  // In a valid index, this block is consistent with the blocks that were seen before it and after
  // it.
  const bool no_lower = search.token < first && search.guess == search.lowest && search.guess > 0;
  const bool no_higher = search.token >= next && !last && search.guess == search.highest;
  if (first < search.lowest_value || next > search.highest_value || no_lower || no_higher) {
    throw wrong_index(
        search.part->file.path,
        "documents " + with_commas(search.guess * kBlock) + " to " +
            with_commas((search.guess + 1) * kBlock) + " begin at tokens " + with_commas(first) +
            " to " + with_commas(next) + ", but other entries place them between " +
            with_commas(search.lowest_value) + " and " + with_commas(search.highest_value))
        .hint("offsets must not decrease; write the index again");
  }
  if (search.token < first) {
    if (search.guess == search.lowest) return true;  // before the first document
    search.highest = search.guess - 1;
    search.highest_value = first;
  } else if (search.token >= next && !last) {
    search.lowest = search.guess + 1;
    search.lowest_value = next;
  } else {
    const std::uint64_t documents = search.part->file.documents;
    const std::uint64_t here = std::min(kBlock, documents - search.guess * kBlock);
    // Each step of a bisection waits for memory; numbers that lie close together wait less often.
    const std::uint64_t begin = near_begin(entries, here, next, search.token);
    const std::uint64_t* const near = entries + begin;
    __builtin_prefetch(near + kNear / 2);
    const bool brackets = here > kNear && near[0] <= search.token && search.token < near[kNear - 1];
    const std::uint64_t inside = brackets ? begin + last_up_to(near, kNear, search.token)
                                          : last_up_to(entries, here, search.token);
    search.found = search.guess * kBlock + inside;
    return true;
  }
  return false;
}

std::uint64_t DocumentReader::guess_of(const Search& search) {
  const std::uint64_t blocks = search.highest - search.lowest;
  const std::uint64_t values = search.highest_value - search.lowest_value;
  if (blocks == 0 || values == 0) return search.lowest;
  if (search.looks % 3 == 2) return search.lowest + blocks / 2;
  // A guess need not be exact, and floating point is faster than a 128-bit division.
  const std::uint64_t into =
      std::min(search.token - std::min(search.token, search.lowest_value), values - 1);
  const double part =
      static_cast<double>(into) * static_cast<double>(blocks + 1) / static_cast<double>(values);
  return search.lowest + std::min(blocks, static_cast<std::uint64_t>(part));
}

std::uint64_t DocumentReader::next_guess(Search& search) const {
  const std::uint64_t first_block = search.part->first_block;
  for (;;) {
    const std::uint64_t guess = guess_of(search), place = (first_block + guess) >> seen_shift_;
    for (std::uint64_t i = place == 0 ? 0 : place - 1; i < std::min(place + 2, seen_.size()); ++i) {
      const Seen& seen = seen_[i];
      if (seen.block < first_block + search.lowest || seen.block > first_block + search.highest) {
        continue;  // also if no block was seen here
      }
      const std::uint64_t number = seen.block - first_block;
      if (seen.first <= search.token) {
        search.lowest = number;
        search.lowest_value = seen.first;
      } else if (number > search.lowest) {
        search.highest = number - 1;
        search.highest_value = seen.first;
      }
    }
    if (guess >= search.lowest && guess <= search.highest) return guess;
  }
}

// Prefetches the entries where the search probably ends in the block of its guess, as `advance`
// computes it if documents are spread evenly.
void DocumentReader::prefetch(const Search& search, const std::uint64_t* entries) {
  const double blocks = static_cast<double>(search.highest - search.lowest + 1);
  const auto values = static_cast<double>(search.highest_value - search.lowest_value);
  const double into = static_cast<double>(search.token) - static_cast<double>(search.lowest_value);
  const double place =
      (into * blocks / values - static_cast<double>(search.guess - search.lowest)) * kBlock;
  __builtin_prefetch(entries);
  __builtin_prefetch(entries + kBlock);
  if (!(place >= 0 && place < kBlock)) return;  // also if there are no values
  constexpr std::uint64_t kAround = 2 * kLine;
  const std::uint64_t line = static_cast<std::uint64_t>(place) / kLine * kLine;
  const std::uint64_t end = std::min(kBlock, line + kAround + kLine);
  for (std::uint64_t at = line - std::min(line, kAround); at < end; at += kLine) {
    __builtin_prefetch(entries + at);
  }
}

// Searches continue while the blocks that they need are in memory. Their entries are prefetched
// first, so that all searches wait for memory together. Then all missing blocks are read
// together.
void DocumentReader::run_searches() {
  std::array<std::uint64_t, kTogether> missing;
  std::array<const std::uint64_t*, kTogether> looks;
  std::size_t left = searches_.size();
  while (left > 0) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < left; ++i) {
      Search& search = searches_[i];
      if (!search.waits) {
        search.guess = next_guess(search);
        ++search.looks;
      }
      const std::uint64_t id = search.part->first_block + search.guess;
      looks[i] = cached(id);
      search.waits = looks[i] == nullptr;
      if (looks[i]) {
        prefetch(search, looks[i]);
      } else if (std::find(missing.begin(), missing.begin() + count, id) ==
                 missing.begin() + count) {
        missing[count++] = id;
      }
    }
    for (std::size_t i = left; i-- > 0;) {
      if (looks[i] && advance(searches_[i], looks[i])) std::swap(searches_[i], searches_[--left]);
    }
    if (count > 0) load(std::span(missing).first(count));
  }
}

std::uint64_t DocumentReader::entry_at(const Part& part, std::uint64_t token_in_file) {
  searches_.assign(1, search_for(part, token_in_file));
  run_searches();
  return searches_[0].found;
}

std::uint64_t DocumentReader::document_of(const Search& search) const {
  const Part& part = *search.part;
  if (search.found == UINT64_MAX || search.found < part.skipped_documents) {
    // The token lies before the first document of the file.
    if (!part.head && part.first_document == 0) {
      throw wrong_index(part.file.path, "no document contains token " + with_commas(search.token))
          .hint("the index is damaged or was changed; write it again");
    }
    return part.head ? part.first_document : part.first_document - 1;
  }
  return part.first_document + (part.head ? 1 : 0) + search.found - part.skipped_documents;
}

void DocumentReader::locate(std::span<const std::uint64_t> tokens,
                            std::span<std::uint64_t> documents) {
  for (std::size_t at = 0; at < tokens.size(); at += kTogether) {
    const std::size_t count = std::min<std::size_t>(kTogether, tokens.size() - at);
    searches_.clear();
    for (std::size_t i = at; i < at + count; ++i) {
      if (const Memo& memo = memo_of(tokens[i]); memo.token == tokens[i]) {
        documents[i] = memo.document;
        continue;
      }
      const auto after = std::ranges::upper_bound(index_->parts_, tokens[i], {},
                                                  [](const Part& p) { return p.first_token; });
      const Part& part = *(after - 1);
      if (part.file.documents == 0) {
        documents[i] = part.head ? part.first_document : part.first_document - 1;
        continue;
      }
      Search search = search_for(part, tokens[i] - part.first_token + part.skipped_tokens);
      search.result = i;
      searches_.push_back(search);
    }
    run_searches();
    for (const Search& search : searches_) documents[search.result] = document_of(search);
  }
}

std::uint64_t DocumentReader::locate(std::uint64_t token) {
  std::uint64_t document;
  locate({&token, 1}, {&document, 1});
  return document;
}

}  // namespace evenkeel
