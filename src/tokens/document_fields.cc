#include "tokens/document_fields.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "evenkeel/error.h"
#include "tokens/widen.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kFieldsAlignment = 64;  // as for all fields of a batch

constexpr std::array<std::pair<std::string_view, DocumentMode>, 5> kModes = {{
    {"none", DocumentMode::kNone},
    {"mask", DocumentMode::kMask},
    {"start", DocumentMode::kStart},
    {"packed", DocumentMode::kPacked},
    {"whole", DocumentMode::kWhole},
}};

// Values of loss_mask.
constexpr std::uint8_t kCounts = 1, kLeftOut = 0;

}  // namespace

DocumentMode parse_document_mode(std::string_view name) {
  for (const auto& [text, mode] : kModes) {
    if (text == name) return mode;
  }
  throw Error(ErrorKind::kInvalid, "documents",
              "\"" + std::string(name) + "\" is not a document mode")
      .hint("the modes are none, mask, start, packed, whole");
}

std::string_view document_mode_name(DocumentMode mode) {
  return kModes[static_cast<std::size_t>(mode)].first;
}

DocumentsLayout documents_layout(std::uint64_t rows, std::uint64_t columns,
                                 std::uint32_t most_documents) {
  const std::uint64_t places = rows * columns;
  DocumentsLayout layout;
  layout.most_documents = most_documents > 0 ? most_documents : places;
  layout.bytes = kFieldsAlignment;  // the counts
  const auto add = [&](std::uint64_t bytes) {
    return std::exchange(layout.bytes, round_up(layout.bytes + bytes, kFieldsAlignment));
  };
  layout.position_ids = add(places * sizeof(std::int32_t));
  layout.document_ids = add(places * sizeof(std::int32_t));
  layout.cu_seqlens = add((layout.most_documents + 1) * sizeof(std::int32_t));
  layout.loss_mask = add(places);
  return layout;
}

DocumentFields::DocumentFields(const DocumentsLayout& layout, std::uint64_t rows,
                               std::uint64_t columns, const DocumentOptions& options,
                               std::byte* memory)
    : layout_(layout),
      rows_(rows),
      columns_(columns),
      options_(options),
      counts_(reinterpret_cast<std::uint32_t*>(memory)),
      position_ids_(reinterpret_cast<std::int32_t*>(memory + layout.position_ids)),
      document_ids_(reinterpret_cast<std::int32_t*>(memory + layout.document_ids)),
      cu_seqlens_(reinterpret_cast<std::int32_t*>(memory + layout.cu_seqlens)),
      loss_mask_(reinterpret_cast<std::uint8_t*>(memory + layout.loss_mask)) {}

void DocumentFields::begin() {
  counts_[0] = counts_[1] = 0;
  set_places(rows_ * columns_);
  std::memset(loss_mask_, kCounts, rows_ * columns_);
}

void DocumentFields::add(std::uint64_t place) {
  if (counts_[0] == layout_.most_documents) {
    throw Error(ErrorKind::kInvalid, "documents",
                "a batch of " + with_commas(rows_) + " x " + with_commas(columns_) +
                    " tokens has more than the " + with_commas(layout_.most_documents) +
                    " documents that cu_seqlens has room for")
        .hint("raise most_documents, or leave it out");
  }
  cu_seqlens_[counts_[0]++] = static_cast<std::int32_t>(place);
  document_ids_[place] = 0;  // for `finish`: not padding
}

void DocumentFields::boundary(std::uint64_t column) {
  if (!options_.predict_first) loss_mask_[row_begin_ + column - 1] = kLeftOut;
  if (column < columns_) add(row_begin_ + column);
}

void DocumentFields::pad_from(std::uint64_t column) {
  if (column == columns_) return;
  if (column > 0) add(row_begin_ + column);
  std::memset(loss_mask_ + row_begin_ + column, kLeftOut, columns_ - column);
  document_ids_[row_begin_ + column] = -1;  // for `finish`: padding
}

void DocumentFields::finish() {
  const std::uint64_t places = counts_[2], documents = counts_[0];
  const bool may_pad = options_.mode == DocumentMode::kPacked;
  const std::uint64_t last = options_.most_documents > 0 ? layout_.most_documents : documents;
  std::fill(cu_seqlens_ + documents, cu_seqlens_ + last + 1, static_cast<std::int32_t>(places));
  std::uint32_t longest = 0;
  for (std::uint64_t i = 0; i < documents; ++i) {
    const std::int32_t begin = cu_seqlens_[i], end = cu_seqlens_[i + 1];
    longest = std::max(longest, static_cast<std::uint32_t>(end - begin));
    const bool padding = may_pad && document_ids_[begin] == -1;
    number_document(position_ids_ + begin, document_ids_ + begin,
                    static_cast<std::uint64_t>(end - begin),
                    padding ? -1 : static_cast<std::int32_t>(i));
  }
  counts_[1] = longest;
}

const std::byte* Batch::require_documents() const {
  if (documents_) return documents_;
  throw Error(ErrorKind::kInvalid, "batch", "the loader was created without documents")
      .hint("set LoaderOptions::documents.mode");
}

Rows<std::int32_t> Batch::position_ids() const {
  return {reinterpret_cast<const std::int32_t*>(require_documents() + layout_.position_ids), rows_,
          columns_};
}

Rows<std::int32_t> Batch::document_ids() const {
  return {reinterpret_cast<const std::int32_t*>(require_documents() + layout_.document_ids), rows_,
          columns_};
}

Rows<std::uint8_t> Batch::loss_mask() const {
  return {reinterpret_cast<const std::uint8_t*>(require_documents() + layout_.loss_mask), rows_,
          columns_};
}

std::span<const std::int32_t> Batch::cu_seqlens() const {
  const std::byte* memory = require_documents();
  const auto documents = reinterpret_cast<const std::uint32_t*>(memory)[0];
  return {reinterpret_cast<const std::int32_t*>(memory + layout_.cu_seqlens),
          (fixed_documents_ ? layout_.most_documents : documents) + 1};
}

std::uint64_t Batch::max_seqlen() const {
  return reinterpret_cast<const std::uint32_t*>(require_documents())[1];
}

}  // namespace evenkeel
