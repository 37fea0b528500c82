// Functions that create each engine, for choose.cc and for tests. Other code uses make_engine.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace evenkeel {

// `share` is the reservation for the pages of the mapped files, if they count against a budget.
std::unique_ptr<Engine> make_map_engine(const Layout& layout, Reservation share = {});
std::unique_ptr<Engine> make_remap_engine(const Layout& layout, const Budget& budget);
std::unique_ptr<Engine> make_advise_engine(const Layout& layout, const Budget& budget);
// `available` returns how many bytes of memory are available.
std::unique_ptr<Engine> make_fill_engine(
    const Layout& layout, const Budget& budget,
    std::function<std::uint64_t()> available = [] { return available_memory().bytes; });
std::unique_ptr<Engine> make_read_engine(const Layout& layout, const Budget& budget);

enum class QueueChoice { kBest, kThreads };  // kThreads: as if io_uring were not allowed
// Returns nullptr if a file does not support O_DIRECT; `why_not` is then the reason.
std::unique_ptr<Engine> make_direct_engine(const Layout& layout, const Budget& budget,
                                           std::string& why_not,
                                           QueueChoice queue = QueueChoice::kBest);
// Takes cached bytes from the page cache; `rest` reads the others.
std::unique_ptr<Engine> make_cache_first_engine(const Layout& layout, const Budget& budget,
                                                std::unique_ptr<Engine> rest);

// The size of an engine's buffers, between `least` and `most`: a sixteenth of the limit while most
// of the budget is free. Each further array that shares the budget gets less: a sixth of what is
// left above half of the limit. An engine takes at most twice this size and some pages, so buffers
// leave half of the budget free, except for the `least` that each engine needs.
std::uint64_t buffer_size(const Budget& budget, std::uint64_t least, std::uint64_t most);

// For objects on servers: segments with `remote`.
std::unique_ptr<Engine> make_remote_engine(const Layout& layout, const Budget& budget);

// For arrays in compressed chunks: layouts with `chunks`.
std::unique_ptr<Engine> make_decode_engine(const Layout& layout, const Budget& budget);

// Reading a gap of this size costs as much as a second request: bandwidth divided by requests per
// second. Measured on virtual NVMe: 5 GB/s and 150,000 requests/s make 33 KB; see docs/design.md.
inline constexpr std::uint64_t kMergeGap = 32 << 10;

}  // namespace evenkeel
