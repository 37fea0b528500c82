// The index of documents that Megatron's and datatrove's files have beside the tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "evenkeel/dtype.h"
#include "write/file_writer.h"

namespace evenkeel {

// The number by which Megatron's index names a dtype; 0 where it has none.
int megatron_code(DType dtype);

class DocumentIndexWriter {
 public:
  virtual ~DocumentIndexWriter() = default;
  // A document of so many tokens ends at token `end`.
  virtual void add(std::uint64_t tokens, std::uint64_t end) = 0;
  virtual void save() = 0;  // all documents so far, for a later resume
  // The index is on the disk; `commit` gives it its name.
  virtual void complete(std::uint64_t documents) = 0;
  virtual void commit() = 0;
  virtual void forget() noexcept = 0;  // drops what is not finished
};

// `documents` with `tokens` were written before, when `options` say resume. The index of Megatron
// is made of the lengths when all are known: until then they are in a file of their own, so that
// memory does not grow with the number of documents.
std::unique_ptr<DocumentIndexWriter> make_document_index(
    bool megatron, const std::string& tokens_path, DType dtype, const FileWriterOptions& options,
    std::uint64_t documents, std::uint64_t tokens);

}  // namespace evenkeel
