// An index of documents that Evenkeel makes itself, for files that have none: one scan finds the
// tokens at which documents begin or end. docs/formats.md describes the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "evenkeel/budget.h"
#include "format/layout.h"
#include "format/source.h"
#include "format/token_layout.h"

namespace evenkeel {

// The token that separates documents.
struct Separator {
  std::int64_t token = 0;
  bool begins = true;  // a document begins at it; false: one ends with it
};
// Throws Error (kInvalid) if no token of this type can be the separator.
void require_possible(const Separator& separator, DType dtype, const std::string& path);

// The first tokens of documents are uint64 numbers from here on.
inline constexpr std::uint64_t kStoredIndexHeader = 4096;
inline constexpr std::string_view kStoredIndexSuffix = ".documents";

struct StoredIndex {
  Source source;  // open, as it was checked
  std::uint64_t documents = 0;
  std::uint64_t first = 0;  // the first token of the first document
};

// Where the index of a token file lies: beside it, or in `folder` if that is not empty. Each
// separator has an index of its own: "train.bin.bos50256.documents". Throws Error (kInvalid) for a
// URL without a folder.
std::string stored_index_path(const std::string& tokens_path, const Separator& separator,
                              const std::string& folder);

// The index of this file, which is made if there is none, or if it belongs to another file or
// to another state of this one. It is written under another name and renamed
// when it is whole; processes that want the same index wait for the one that makes it. `stream` is
// the layout of the stream that the file is part of. Memory comes from the budget and does not grow
// with the file. Throws Error (kFormat) if there is no document at all, kInvalid, kSystem, kBudget.
StoredIndex find_stored_index(const TokenFileInfo& file, const Layout& stream,
                              const Separator& separator, const std::string& folder,
                              const Budget& budget);

}  // namespace evenkeel
