// Implements file_cache of meter.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "evenkeel/meter.h"

namespace evenkeel {

// For an open file, so that a file that is watched need not be opened each time.
std::optional<FileCache> file_cache_of(int fd);
// For kernels before 6.5. Slow: it walks every page of the file.
std::optional<FileCache> file_cache_by_mincore(int fd);

}  // namespace evenkeel
