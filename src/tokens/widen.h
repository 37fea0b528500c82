// Stored tokens become what a model takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/dtype.h"

namespace evenkeel {

// Whether tokens of `stored` may be handed out as `out`: int64 and int32 take any integers, and
// every type itself.
bool can_widen(DType stored, DType out);

// x[i] = tokens[i], y[i] = tokens[i+1] for i < count; `tokens` holds count + 1, at any address.
// Returns false when a token does not fit `out`, which only uint32 and 64-bit tokens can do.
bool widen_xy(DType stored, const std::byte* tokens, std::uint64_t count, DType out, std::byte* x,
              std::byte* y);

// positions[i] = i and numbers[i] = value for i < count, with the widest instructions of this
// processor.
void number_document(std::int32_t* positions, std::int32_t* numbers, std::uint64_t count,
                     std::int32_t value);

// The instructions that widen_xy uses on this processor: "AVX2" or "plain".
const char* widened_by();

}  // namespace evenkeel
