// An index of documents that Evenkeel creates for files without one. A scan finds the tokens at
// which documents begin or end. docs/formats.md describes the file format.
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
  bool begins = true;  // documents begin with it; false: they end with it
};
// Throws Error (kInvalid) if no token of this type can be the separator.
void require_possible(const Separator& separator, DType dtype, const std::string& path);

// The first tokens of documents are uint64 numbers from here on.
inline constexpr std::uint64_t kStoredIndexHeader = 4096;
inline constexpr std::string_view kStoredIndexSuffix = ".documents";

struct StoredIndex {
  Source source;  // open; this is the file that was checked
  std::uint64_t documents = 0;
  std::uint64_t first = 0;  // the first token of the first document
};

// The path of the index of a token file: next to it, or in `folder` if that is not empty. Each
// separator has its own index: "train.bin.bos50256.documents". Throws Error (kInvalid) for a URL
// without a folder.
std::string stored_index_path(const std::string& tokens_path, const Separator& separator,
                              const std::string& folder);

// Returns the index of this file. Creates it if there is none, or if it belongs to another file or
// to another version of this one. It is written under another name and renamed when it is complete;
// other processes that need the same index wait. `stream` is the layout of the stream that the file
// is part of. Memory is reserved from the budget and does not grow with the file. Throws Error
// (kFormat) if there is no document at all, kInvalid, kSystem, kBudget.
StoredIndex find_stored_index(const TokenFileInfo& file, const Layout& stream,
                              const Separator& separator, const std::string& folder,
                              const Budget& budget);

}  // namespace evenkeel
