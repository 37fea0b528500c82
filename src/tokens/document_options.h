// The options of documents, checked, and what they say about files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "documents/document_files.h"
#include "evenkeel/error.h"
#include "evenkeel/tokens.h"

namespace evenkeel {

Error wrong_documents(const std::string& what);

// With defaults filled in: window and bucket. Throws Error (kInvalid) with the numbers.
LoaderOptions checked_documents(LoaderOptions options);
// `pad` must fit the type that tokens are given as.
void require_pad(const LoaderOptions& options, DType stored);

DocumentSource source_of(const DocumentOptions& options);
// The separator that all files of a set have, if none of them has an index.
std::optional<Separator> common_separator(const std::vector<TokenFileInfo>& files,
                                          const DocumentSource& source);
// Every set has one.
bool all_have_separators(const std::vector<WeightedTokens>& sets, const LoaderOptions& options);

}  // namespace evenkeel
