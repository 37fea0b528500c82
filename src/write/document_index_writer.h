// The document index beside the token files of Megatron and datatrove.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "evenkeel/dtype.h"
#include "write/file_writer.h"

namespace evenkeel {

// The code of a dtype in Megatron's index; 0 if it has none.
int megatron_code(DType dtype);

class DocumentIndexWriter {
 public:
  virtual ~DocumentIndexWriter() = default;
  // Adds a document of `tokens` tokens that ends at token `end`.
  virtual void add(std::uint64_t tokens, std::uint64_t end) = 0;
  virtual void save() = 0;  // makes a checkpoint of all documents so far
  // Puts the index on the disk; `commit` gives it its name.
  virtual void complete(std::uint64_t documents) = 0;
  virtual void commit() = 0;
  virtual void forget() noexcept = 0;  // removes unfinished files
};

// If `options` say resume, `documents` documents with `tokens` tokens were written before.
// Megatron's index is made of all lengths at the end. Until then the lengths are in a separate
// file, so that memory does not grow with the number of documents.
std::unique_ptr<DocumentIndexWriter> make_document_index(
    bool megatron, const std::string& tokens_path, DType dtype, const FileWriterOptions& options,
    std::uint64_t documents, std::uint64_t tokens);

}  // namespace evenkeel
