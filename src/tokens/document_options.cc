#include "tokens/document_options.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "documents/find_tokens.h"
#include "tokens/impl.h"

namespace evenkeel {

Error wrong_documents(const std::string& what) {
  return Error(ErrorKind::kInvalid, "documents", what);
}

LoaderOptions checked_documents(LoaderOptions options) {
  DocumentOptions& documents = options.documents;
  const bool whole = documents.mode == DocumentMode::kWhole;
  const auto places = checked_mul(options.batch_size, options.block_size);
  if (!places || *places > std::numeric_limits<std::int32_t>::max()) {
    throw wrong_documents("cu_seqlens is int32, but a batch of " + with_commas(options.batch_size) +
                          " x " + with_commas(options.block_size) +
                          " tokens has more than 2^31-1 positions")
        .hint("take a smaller batch_size");
  }
  if (documents.bos && documents.eos) {
    throw wrong_documents("bos and eos exclude each other; got both")
        .hint("bos: documents begin with it; eos: they end with it");
  }
  if (documents.most_documents > 0 && documents.most_documents < options.batch_size) {
    throw wrong_documents("most_documents is " + with_commas(documents.most_documents) +
                          ", but each of the " + with_commas(options.batch_size) +
                          " rows of a batch begins one");
  }
  if (documents.mode == DocumentMode::kPacked && documents.mixed_windows == 0) {
    throw wrong_documents("mixed_windows must be at least 1");
  }
  if (documents.bucket > 0 && !whole) {
    throw wrong_documents("bucket belongs to documents=\"whole\", not to \"" +
                          std::string(document_mode_name(documents.mode)) + "\"");
  }
  constexpr std::uint32_t kPackedRows = 512, kSortedDocuments = 4096;
  if (documents.window == 0) documents.window = whole ? kSortedDocuments : kPackedRows;
  if (!whole) return options;
  if (documents.bucket == 0) documents.bucket = options.batch_size * options.world;
  constexpr std::uint64_t kMostTogether = std::uint64_t{1} << 31;
  if (documents.bucket > kMostTogether || documents.window > kMostTogether) {
    throw wrong_documents("a bucket of " + with_commas(documents.bucket) +
                          " documents, or a window of " + with_commas(documents.window) +
                          ", is more than the " + with_commas(kMostTogether) +
                          " that can be sorted together");
  }
  return options;
}

void require_pad(const LoaderOptions& options, DType stored) {
  const DType out = options.dtype.value_or(stored);
  const std::int64_t pad = options.documents.pad;
  if (options.documents.mode != DocumentMode::kPacked || can_hold(out, pad)) return;
  throw wrong_documents("pad is " + std::to_string(pad) + ", which does not fit " + out.name())
      .hint("use another pad, or another dtype");
}

DocumentSource source_of(const DocumentOptions& options) {
  return {options.bos, options.eos, options.index};
}

std::optional<Separator> common_separator(const std::vector<TokenFileInfo>& files,
                                          const DocumentSource& source) {
  std::optional<Separator> common;
  for (const TokenFileInfo& file : files) {
    if (has_own_index(file)) return std::nullopt;
    const auto one = separator_of(file, source);
    if (!one || (common && (common->token != one->token || common->begins != one->begins))) {
      return std::nullopt;
    }
    common = one;
  }
  return common;
}

bool all_have_separators(const std::vector<WeightedTokens>& sets, const LoaderOptions& options) {
  return std::ranges::all_of(sets, [&](const WeightedTokens& set) {
    return common_separator(TokenInternals::of(set.tokens).files, source_of(options.documents))
        .has_value();
  });
}

}  // namespace evenkeel
