// Rows out of mapped files whose pages may have to be read first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/engine.h"
#include "format/layout.h"

namespace evenkeel {

// Copies `count` rows from each start, one after the other, to `out`. While some are copied, the
// next are read. For engines whose pages_may_be_absent.
void copy_absent(Engine& engine, const Layout& layout, std::span<const std::uint64_t> starts,
                 std::uint64_t count, std::byte* out);

}  // namespace evenkeel
