// The engines by name, for choose.cc and for the tests; users ask through make_engine.
#pragma once

#include <memory>
#include <string>

#include "engine/engine.h"

namespace evenkeel {

std::unique_ptr<Engine> make_map_engine(const Layout& layout, const Budget& budget);
std::unique_ptr<Engine> make_remap_engine(const Layout& layout, const Budget& budget);
std::unique_ptr<Engine> make_advise_engine(const Layout& layout, const Budget& budget);
std::unique_ptr<Engine> make_read_engine(const Layout& layout, const Budget& budget);

enum class QueueChoice { kBest, kThreads };  // kThreads: as if io_uring were not allowed
// Empty when a file does not take O_DIRECT; `why_not` then says so.
std::unique_ptr<Engine> make_direct_engine(const Layout& layout, const Budget& budget,
                                           std::string& why_not,
                                           QueueChoice queue = QueueChoice::kBest);
// What is cached from the cache, the rest by `rest`.
std::unique_ptr<Engine> make_cache_first_engine(const Layout& layout, const Budget& budget,
                                                std::unique_ptr<Engine> rest);

// A gap that costs as much to read as a second request: bandwidth divided by requests a second.
// Measured on virtual NVMe: 5 GB/s and 150,000 requests/s make 33 KB; see docs/design.md.
inline constexpr std::uint64_t kMergeGap = 32 << 10;

}  // namespace evenkeel
