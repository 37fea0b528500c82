// The engines by name, for choose.cc and for the tests; users ask through make_engine.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace evenkeel {

// `share` is for the pages of the mapped files, if they are to keep to a budget.
std::unique_ptr<Engine> make_map_engine(const Layout& layout, Reservation share = {});
std::unique_ptr<Engine> make_remap_engine(const Layout& layout, const Budget& budget);
std::unique_ptr<Engine> make_advise_engine(const Layout& layout, const Budget& budget);
// `available` says how much memory is free, in bytes.
std::unique_ptr<Engine> make_fill_engine(
    const Layout& layout, const Budget& budget,
    std::function<std::uint64_t()> available = [] { return available_memory().bytes; });
std::unique_ptr<Engine> make_read_engine(const Layout& layout, const Budget& budget);

enum class QueueChoice { kBest, kThreads };  // kThreads: as if io_uring were not allowed
// Empty when a file does not take O_DIRECT; `why_not` then says so.
std::unique_ptr<Engine> make_direct_engine(const Layout& layout, const Budget& budget,
                                           std::string& why_not,
                                           QueueChoice queue = QueueChoice::kBest);
// Takes cached bytes from the page cache; `rest` reads the others.
std::unique_ptr<Engine> make_cache_first_engine(const Layout& layout, const Budget& budget,
                                                std::unique_ptr<Engine> rest);

// The size of an engine's buffers. It grows with the limit: a sixteenth of it, as long as most of
// the budget is free. Arrays that share a budget get less, one after the other: a sixth of what is
// left above half of the limit. An engine takes at most two such sizes and some pages, so that
// buffers never take the lower half of a budget, but for the `least` that each needs.
std::uint64_t buffer_size(const Budget& budget, std::uint64_t least, std::uint64_t most);

// For objects on servers: segments with `remote`.
std::unique_ptr<Engine> make_remote_engine(const Layout& layout, const Budget& budget);

// For arrays in compressed chunks: layouts with `chunks`.
std::unique_ptr<Engine> make_decode_engine(const Layout& layout, const Budget& budget);

// A gap that costs as much to read as a second request: bandwidth divided by requests a second.
// Measured on virtual NVMe: 5 GB/s and 150,000 requests/s make 33 KB; see docs/design.md.
inline constexpr std::uint64_t kMergeGap = 32 << 10;

}  // namespace evenkeel
