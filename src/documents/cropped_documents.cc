#include "documents/cropped_documents.h"

#include <algorithm>

namespace evenkeel {

CroppedDocuments::CroppedDocuments(DocumentReader& reader, std::uint64_t columns,
                                   const Budget& budget)
    : columns_(columns),
      share_(budget.reserve(kMost * sizeof(std::uint64_t), "starts of cropped documents")) {
  marks_.reserve(kMost);
  std::uint64_t document = 0, last = 0;
  const auto add = [&](std::uint64_t start) {
    if (document > 0) tokens_ += std::min(columns_, std::max(start, last) - last);
    last = start;
  };
  reader.for_each_start(0, [&](std::uint64_t start) {
    add(start);
    if (document++ % stride_ != 0) return true;
    if (marks_.size() == kMost) {
      // Keep every other mark. This document is at a multiple of the new stride, too.
      for (std::size_t i = 0; i < kMost / 2; ++i) marks_[i] = marks_[2 * i];
      marks_.resize(kMost / 2);
      stride_ *= 2;
    }
    marks_.push_back(tokens_);
    return true;
  });
  add(reader.index().tokens());
}

std::uint64_t CroppedDocuments::first_from(std::uint64_t token, DocumentReader& reader) const {
  const auto after =
      std::ranges::upper_bound(marks_, token, {}, [](std::uint64_t mark) { return mark; });
  const auto mark = static_cast<std::uint64_t>(std::max<std::ptrdiff_t>(after - marks_.begin(), 1));
  // Empty documents begin at the same token as others, so the first one may lie before the mark.
  std::uint64_t at = marks_[mark - 1], document = (mark - 1) * stride_;
  for (auto before = mark - 1; before > 0 && at == token; --before) {
    at = marks_[before - 1];
    document = (before - 1) * stride_;
  }
  std::uint64_t last = 0;
  bool first = true;
  reader.for_each_start(document, [&](std::uint64_t start) {
    if (!first) {
      at += std::min(columns_, std::max(start, last) - last);
      ++document;
    }
    first = false;
    last = start;
    return at < token;
  });
  if (at < token) return reader.index().size();
  return document;
}

}  // namespace evenkeel
