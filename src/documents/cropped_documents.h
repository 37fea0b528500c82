// The stream of tokens that remains when every document is cut after a number of tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "documents/document_index.h"
#include "evenkeel/budget.h"

namespace evenkeel {

// Where documents begin in that stream. The constructor reads the whole index once and keeps some
// positions, so that a lookup reads only a small part. Immutable, so thread-safe.
class CroppedDocuments {
 public:
  // Keeps the first `columns` tokens of each document. Throws Error (kBudget), and the errors of
  // reading the index.
  CroppedDocuments(DocumentReader& reader, std::uint64_t columns, const Budget& budget);

  std::uint64_t tokens() const { return tokens_; }
  // The first document that begins at `token` or later in the cropped stream.
  std::uint64_t first_from(std::uint64_t token, DocumentReader& reader) const;

 private:
  static constexpr std::size_t kMost = std::size_t{1} << 16;

  const std::uint64_t columns_;
  std::uint64_t tokens_ = 0;
  const Reservation share_;
  std::uint64_t stride_ = 1;          // number of documents from one mark to the next
  std::vector<std::uint64_t> marks_;  // where documents 0, stride_, 2 * stride_, ... begin
};

}  // namespace evenkeel
