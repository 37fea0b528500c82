// Finds where the starts of documents are stored, for each token file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "array/impl.h"
#include "documents/stored_index.h"
#include "evenkeel/error.h"
#include "format/token_layout.h"

namespace evenkeel {

// How documents are separated in files without an index.
struct DocumentSource {
  std::optional<std::int64_t> bos, eos;  // at most one
  std::string index_folder = {};         // for new indexes; empty: next to the files
};

// The token at which documents begin or end in this file: that of `source`, or the one of its
// format.
std::optional<Separator> separator_of(const TokenFileInfo& file, const DocumentSource& source);
// Whether the file has an index of Megatron or datatrove, or a NAME.doc.npy next to it.
bool has_own_index(const TokenFileInfo& file);

// Where the first tokens of one file's documents are stored. Entry i is the first token of document
// i of the file; entry `documents` is the number of its tokens.
struct FileDocuments {
  enum class Kind : std::uint8_t { kStarts, kEnds, kMegatron };
  Kind kind = Kind::kStarts;
  std::string path;  // of the index, for errors
  std::size_t array = 0;
  std::uint64_t first_row = 0;   // of its numbers in that array; for Megatron, of the pointers
  std::uint64_t bounds_row = 0;  // first row of the document bounds (Megatron only)
  std::uint64_t sequences = 0;   // Megatron only
  std::uint32_t token_bytes = 0;
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t first = 0;  // entry 0
};

// The documents of all files, and the arrays with their numbers: one for each dtype and byte order,
// so that a stream of a thousand files has one engine, not a thousand.
struct DocumentFiles {
  std::vector<FileDocuments> files;  // one for each token file, in the same order
  std::vector<std::shared_ptr<Array::Impl>> arrays;
};
// Finds the index of each file, or creates it. `stream` consists of `files`. Throws Error.
DocumentFiles open_document_files(const Layout& stream, const std::vector<TokenFileInfo>& files,
                                  const DocumentSource& source, const Budget& budget);

// The error for an index that is wrong.
Error wrong_index(const std::string& path, const std::string& what);

}  // namespace evenkeel
