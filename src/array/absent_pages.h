// Copies rows from mapped files whose pages may not be in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/engine.h"
#include "format/layout.h"

namespace evenkeel {

// Copies `count` rows from each start, one after the other, to `out`. While some are copied, the
// next are read. For engines for which pages_may_be_absent() is true.
void copy_absent(Engine& engine, const Layout& layout, std::span<const std::uint64_t> starts,
                 std::uint64_t count, std::byte* out);

}  // namespace evenkeel
