// What `evenkeel info` says of files that hold several arrays: weights, tables, archives.
#pragma once

#include <optional>
#include <string>

#include "evenkeel/budget.h"

namespace evenkeel::cli {

// Lists the tensors of a file of weights, or of an index of shards, that is named so. False: it is
// not. Throws Error.
bool show_weights(const std::string& path, const std::optional<std::uint64_t>& budget, bool json);

// Lists the arrays of a container. False: the file is none, or holds one. Throws Error.
bool show_members(const std::string& path, bool json);

}  // namespace evenkeel::cli
