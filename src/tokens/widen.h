// Converts stored tokens to the dtype of a batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "evenkeel/dtype.h"

namespace evenkeel {

// Whether tokens of dtype `stored` can be returned as `out`: int64, int32, or the same dtype.
bool can_widen(DType stored, DType out);

// x[i] = tokens[i], y[i] = tokens[i+1] for i < count. `tokens` has count + 1 tokens and need not be
// aligned. Returns false if a token does not fit `out`, which can happen only with uint32 and
// 64-bit tokens.
bool widen_xy(DType stored, const std::byte* tokens, std::uint64_t count, DType out, std::byte* x,
              std::byte* y);

// Sets positions[i] = i and numbers[i] = value for i < count, with AVX2 if the processor has it.
void number_document(std::int32_t* positions, std::int32_t* numbers, std::uint64_t count,
                     std::int32_t value);

// The instructions that widen_xy uses on this processor: "AVX2" or "plain".
const char* widened_by();

}  // namespace evenkeel
