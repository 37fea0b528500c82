// Where documents begin in a stream of tokens. The index is read in blocks when needed, and never
// loaded as a whole.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "array/impl.h"
#include "base/memory.h"
#include "documents/document_files.h"
#include "format/token_layout.h"

namespace evenkeel {

class DocumentReader;

// The documents of a stream, numbered from 0. If the stream begins inside a document, that document
// begins with the stream. A document that continues in the next file (llm.c) is one document.
// Immutable, so thread-safe: each thread reads through its own DocumentReader.
class DocumentIndex {
 public:
  // Finds the index of each file, or creates it. `files` must list every file of `stream`. Throws
  // Error (kFormat, kInvalid, kSystem, kBudget).
  static std::shared_ptr<const DocumentIndex> open(const Layout& stream,
                                                   const std::vector<TokenFileInfo>& files,
                                                   const DocumentSource& source,
                                                   const Budget& budget);

  std::uint64_t size() const { return documents_; }
  std::uint64_t tokens() const { return tokens_; }
  std::uint64_t blocks() const { return blocks_; }

 private:
  friend class DocumentReader;

  // The part of a file that is in the stream.
  struct Part {
    FileDocuments file;
    std::uint64_t first_token = 0, tokens = 0;  // in the stream
    std::uint64_t skipped_tokens = 0;           // of the file, before the part
    std::uint64_t first_document = 0;           // in the stream
    std::uint64_t documents = 0;                // documents that begin here, including `head`
    std::uint64_t skipped_documents = 0;        // entries of the file before the part
    bool head = false;  // the part begins with a document that has no entry in the file
    std::uint64_t first_block = 0, blocks = 0;
  };

  DocumentIndex() = default;
  void add_parts(const Layout& stream, const std::vector<FileDocuments>& files,
                 const std::vector<TokenFileInfo>& infos);
  void number_documents(DocumentReader& reader);

  Reservation share_;
  std::vector<std::shared_ptr<Array::Impl>> arrays_;
  std::vector<Part> parts_;
  std::uint64_t tokens_ = 0, documents_ = 0, blocks_ = 0;
};

// Looks up documents. It caches some blocks of the index, in memory reserved from the budget, and
// checks what it reads: throws Error (kFormat) if offsets decrease or exceed the file. Not
// thread-safe.
class DocumentReader {
 public:
  // The cache takes at most 1/64 of the budget, divided by the number of readers that share it.
  DocumentReader(std::shared_ptr<const DocumentIndex> index, const Budget& budget,
                 std::uint64_t sharers = 1);

  const DocumentIndex& index() const { return *index_; }
  // Finds the document that contains each token.
  void locate(std::span<const std::uint64_t> tokens, std::span<std::uint64_t> documents);
  std::uint64_t locate(std::uint64_t token);
  // Remembers the document of a token for a lookup that comes soon.
  void remember(std::uint64_t token, std::uint64_t document) { memo_of(token) = {token, document}; }
  // The first token of a document. For document size(), the number of tokens.
  std::uint64_t start(std::uint64_t document);
  // The first tokens of this document and of the two after it.
  std::array<std::uint64_t, 3> three_starts(std::uint64_t document) {
    std::array<std::uint64_t, 3> starts;
    if (document + 2 < index_->size()) {
      const Starts from = starts_from(document);
      if (from.count > 2) {
        for (std::size_t i = 0; i < 3; ++i) starts[i] = from.at(i);
        return starts;
      }
    }
    for (std::size_t i = 0; i < 3; ++i) starts[i] = start(document + i);
    return starts;
  }
  // Calls use(start) with the first tokens of documents `document`, document + 1, ... until it
  // returns false or there are no more. `use` must not look documents up.
  template <class Use>
  void for_each_start(std::uint64_t document, Use use) {
    while (document < index_->size()) {
      const Starts starts = starts_from(document);
      for (std::uint64_t i = 0; i < starts.count; ++i) {
        if (!use(starts.at(i))) return;
      }
      document += starts.count;
    }
  }
  // Where a document begins and ends.
  struct Bounds {
    std::uint64_t document = 0, start = 0, end = 0;
  };
  Bounds bounds(std::uint64_t document);
  // From now on, `bounds` finds these documents, which ascend, without reading the index. The
  // caller owns the list. It must not change until `keep` is called with another one.
  void keep(std::span<const Bounds> known) { known_ = known; }
  // Calls use(start, end) for each of these documents, which must ascend. Blocks of the index are
  // read in groups. For documents that are far apart, only their own start and end are read.
  template <class Use>
  void for_each_of(std::span<const std::uint64_t> documents, Use use) {
    bool plain = true;
    while (!documents.empty()) {
      if (plain && far_apart(documents)) {
        const std::span<const Bounds> found = read_bounds(documents, plain);
        for (const Bounds& one : found) use(one.start, std::max(one.start, one.end));
        documents = documents.subspan(found.size());
        if (!found.empty()) continue;
      }
      const std::size_t ready = load_blocks_of(documents);
      for (const std::uint64_t document : documents.first(ready)) {
        const std::uint64_t begin = start(document), end = start(document + 1);
        use(begin, std::max(begin, end));
      }
      documents = documents.subspan(ready);
    }
  }

 private:
  static constexpr std::uint64_t kBlock = 512;           // entries of a block
  static constexpr std::uint64_t kEntries = kBlock + 1;  // and the first of the next block
  static constexpr std::size_t kWays = 4, kTogether = 32;
  static constexpr std::size_t kPairs = 1024;  // documents whose bounds are read together
  static constexpr std::uint64_t kMostSeen = 4096;
  using Part = DocumentIndex::Part;

  // A search for the entry that contains a token of a file, in blocks lowest .. highest of its
  // part.
  struct Search {
    const Part* part = nullptr;
    std::uint64_t token = 0;  // in the file
    std::uint64_t lowest = 0, highest = 0, lowest_value = 0, highest_value = 0;
    std::uint64_t guess = 0, looks = 0;
    bool waits = false;                // for the block `guess`
    std::uint64_t found = UINT64_MAX;  // UINT64_MAX: the token lies before the first entry
    std::size_t result = 0;            // where `locate` puts the result
  };
  Search search_for(const Part& part, std::uint64_t token) const;
  std::uint64_t document_of(const Search& search) const;
  static std::uint64_t guess_of(const Search& search);
  // The next block to look at. Narrows the search with blocks that were seen before.
  std::uint64_t next_guess(Search& search) const;
  struct Memo {
    std::uint64_t token = UINT64_MAX, document = 0;
  };
  struct Frame {
    std::uint64_t block = UINT64_MAX, used = 0;
  };
  // A block that was read, and its first entry. These are kept longer than blocks, one for each
  // 2^seen_shift_ blocks, and narrow later searches.
  struct Seen {
    std::uint64_t block = UINT64_MAX, first = 0;
  };

  // The first tokens of consecutive documents, in memory.
  struct Starts {
    const std::uint64_t* entries = nullptr;
    std::uint64_t count = 0;
    std::uint64_t first = 0, skipped = 0;  // Part::first_token and Part::skipped_tokens
    std::uint64_t at(std::uint64_t i) const {
      return first + (std::max(entries[i], skipped) - skipped);
    }
  };
  Starts starts_from(std::uint64_t document);

  Memo& memo_of(std::uint64_t token) { return memos_[token * 0x9e3779b97f4a7c15 >> 56]; }
  const Part& part_of_document(std::uint64_t document);
  static bool far_apart(std::span<const std::uint64_t> documents);
  // Reads the bounds of the first of these documents into `staging_`. Returns none if the first
  // document is at an end of its part, or if `plain` becomes false. In both cases the caller reads
  // blocks, which also finds errors in the index.
  std::span<const Bounds> read_bounds(std::span<const std::uint64_t> documents, bool& plain);
  // Reads start and end of documents whose two numbers are both in the file of the part; `entries`
  // are their entries. Returns false if the numbers do not look right, or if some are Megatron's
  // empty documents at the end.
  bool read_pairs(const Part& part, std::span<std::uint64_t> entries, std::uint64_t* out);
  // Loads blocks, and returns for how many of the first documents `start` now finds its block in
  // memory; at least one.
  std::size_t load_blocks_of(std::span<const std::uint64_t> documents);
  const std::uint64_t* cached(std::uint64_t block);
  const std::uint64_t* block(const Part& part, std::uint64_t number);
  void load(std::span<const std::uint64_t> blocks);
  static void prefetch(const Search& search, const std::uint64_t* entries);
  void run_searches();
  std::uint64_t* new_frame(std::uint64_t block);
  const Part& part_of_block(std::uint64_t block) const;
  void read_numbers(std::size_t array, std::span<const std::uint64_t> rows, std::uint64_t count,
                    std::uint64_t* out);
  void read_block(const Part& part, std::uint64_t number, std::uint64_t* out);
  void read_megatron(const FileDocuments& file, std::uint64_t first, std::uint64_t count,
                     std::uint64_t* out);
  void check(const Part& part, std::uint64_t number, const std::uint64_t* entries) const;
  // Looks at one block. Returns false if the search must go on.
  bool advance(Search& search, const std::uint64_t* entries);
  friend class DocumentIndex;
  // The entry that contains a token of the file; UINT64_MAX if the token lies before the first.
  std::uint64_t entry_at(const Part& part, std::uint64_t token_in_file);
  std::uint64_t entry(const Part& part, std::uint64_t number);

  const std::shared_ptr<const DocumentIndex> index_;
  PageBuffer memory_;
  std::uint64_t* frames_ = nullptr;   // kEntries each
  std::uint64_t* staging_ = nullptr;  // together_ * kEntries
  std::vector<Frame> table_;          // kWays for each set
  std::size_t sets_ = 1;
  std::size_t together_ = 1;  // blocks that `staging_` has room for
  std::uint64_t clock_ = 0;
  std::vector<Seen> seen_;
  unsigned seen_shift_ = 0;
  // The part of the last lookup by document.
  const Part* last_part_ = nullptr;
  std::vector<Search> searches_;
  std::span<const Bounds> known_;
  std::array<Memo, 256> memos_;
};

}  // namespace evenkeel
