// Where the documents of token files are stored, file by file.
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

// How documents are told apart in files that have no index.
struct DocumentSource {
  std::optional<std::int64_t> bos, eos;  // at most one
  std::string index_folder = {};         // for indexes that are made; empty: beside the files
};

// The token at which documents begin or end in this file: as told, or as its format has it.
std::optional<Separator> separator_of(const TokenFileInfo& file, const DocumentSource& source);
// Megatron's index, datatrove's, or a NAME.doc.npy beside the file.
bool has_own_index(const TokenFileInfo& file);

// Where the first tokens of one file's documents are stored. Entry i is the first token of document
// i of the file; entry `documents` is the number of its tokens.
struct FileDocuments {
  enum class Kind : std::uint8_t { kStarts, kEnds, kMegatron };
  Kind kind = Kind::kStarts;
  std::string path;  // of the index, for errors
  std::size_t array = 0;
  std::uint64_t first_row = 0;   // of its numbers in that array; of Megatron's, the pointers
  std::uint64_t bounds_row = 0;  // of Megatron's document bounds
  std::uint64_t sequences = 0;   // of Megatron's
  std::uint32_t token_bytes = 0;
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t first = 0;  // entry 0
};

// The documents of all files, and the arrays that hold their numbers: one for each dtype and byte
// order, so that a stream of a thousand files has one engine, not a thousand. Finds the index of
// each file, or makes it. `stream` is made of `files`. Throws Error.
struct DocumentFiles {
  std::vector<FileDocuments> files;  // as many, in the same order
  std::vector<std::shared_ptr<Array::Impl>> arrays;
};
DocumentFiles open_document_files(const Layout& stream, const std::vector<TokenFileInfo>& files,
                                  const DocumentSource& source, const Budget& budget);

// Of an index that cannot be right.
Error wrong_index(const std::string& path, const std::string& what);

}  // namespace evenkeel
