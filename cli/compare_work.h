// The work that `compare` gives to every engine: deterministic from the seed, done for some
// seconds.
#pragma once

#include <functional>

#include "cli/compare_spec.h"

namespace evenkeel::cli {

inline constexpr std::uint64_t kCropElements = 1024;

// How much is read at a time, and after how much a checksum is noted. Depends on the array and the
// spec alone, so all engines meet at the same checkpoints.
struct WorkSizes {
  std::uint64_t chunk = 0;        // crops a batch, or rows a chunk
  std::uint64_t slice_items = 0;  // crops or rows
};
WorkSizes work_sizes(const CompareSpec& spec, std::uint64_t rows, std::uint64_t row_bytes);

// Throws Error (kInvalid) when the array has too little for the pattern.
void refuse_too_small(const CompareSpec& spec, const Array& array);

// Opens the array with this engine and works on it; `finished` is called with the result while the
// array is still open. Throws Error.
void do_work(const CompareSpec& spec, EngineKind engine,
             const std::function<void(const WorkerResult&)>& finished);

}  // namespace evenkeel::cli
