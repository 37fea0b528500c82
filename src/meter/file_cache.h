// Behind file_cache of meter.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "evenkeel/meter.h"

namespace evenkeel {

// Of an open file, so that watching it does not mean opening it each time.
std::optional<FileCache> file_cache_of(int fd);
// The slow way, for kernels before 6.5: walks every page of the file.
std::optional<FileCache> file_cache_by_mincore(int fd);

}  // namespace evenkeel
