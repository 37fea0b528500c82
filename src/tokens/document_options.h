// Checks the options for documents, and finds the separators of files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "documents/document_files.h"
#include "evenkeel/error.h"
#include "evenkeel/tokens.h"

namespace evenkeel {

Error wrong_documents(const std::string& what);

// Returns the options with defaults for window and bucket. Throws Error (kInvalid) with the
// numbers.
LoaderOptions checked_documents(LoaderOptions options);
// Throws Error (kInvalid) unless `pad` fits the dtype of the batches.
void require_pad(const LoaderOptions& options, DType stored);

DocumentSource source_of(const DocumentOptions& options);
// The separator that all files of a set have in common, if none of them has an index.
std::optional<Separator> common_separator(const std::vector<TokenFileInfo>& files,
                                          const DocumentSource& source);
// Whether every set has a common separator.
bool all_have_separators(const std::vector<WeightedTokens>& sets, const LoaderOptions& options);

}  // namespace evenkeel
