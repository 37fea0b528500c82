// The part of `evenkeel info` for files that hold several arrays: weights, tables, archives.
#pragma once

#include <optional>
#include <string>

#include "evenkeel/budget.h"

namespace evenkeel::cli {

// Lists the tensors of a weights file or an index of shards, recognized by its name. Returns false
// for other files. Throws Error.
bool show_weights(const std::string& path, const std::optional<std::uint64_t>& budget, bool json);

// Lists the arrays of a container. Returns false if the file is not a container or holds only one
// array. Throws Error.
bool show_members(const std::string& path, bool json);

}  // namespace evenkeel::cli
