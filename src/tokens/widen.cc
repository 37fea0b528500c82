#include "tokens/widen.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

namespace evenkeel {
namespace {

template <class From, class To>
inline __attribute__((always_inline)) bool convert(const std::byte* tokens, std::uint64_t count,
                                                   std::byte* out) {
  constexpr bool kAlwaysFits = std::numeric_limits<From>::digits <= std::numeric_limits<To>::digits;
  bool fits = true;
  for (std::uint64_t i = 0; i < count; ++i) {
    From token;
    std::memcpy(&token, tokens + i * sizeof(From), sizeof token);
    const To wide = static_cast<To>(token);  // NOLINT(bugprone-signed-char-misuse): keeps its sign
    if constexpr (!kAlwaysFits)
      fits &= static_cast<From>(wide) == token && (wide < 0) == (token < 0);
    std::memcpy(out + i * sizeof(To), &wide, sizeof wide);
  }
  return fits;
}

// One pass for x and y would halve the loads, but most of the time goes into the stores.
template <class From, class To>
inline __attribute__((always_inline)) bool both(const std::byte* tokens, std::uint64_t count,
                                                std::byte* x, std::byte* y) {
  const bool x_fits = convert<From, To>(tokens, count, x);
  return convert<From, To>(tokens + sizeof(From), count, y) && x_fits;
}

template <class From, class To>
bool both_plain(const std::byte* tokens, std::uint64_t count, std::byte* x, std::byte* y) {
  return both<From, To>(tokens, count, x, y);
}

#if defined(__x86_64__)
// Uses cpuid: __builtin_cpu_supports needs a runtime library that not every compiler provides.
bool processor_has_avx2() {
  constexpr unsigned kSavesState = 1U << 27U, kAvx = 1U << 28U;  // leaf 1, ecx
  constexpr unsigned kAvx2 = 1U << 5U;                           // leaf 7, ebx
  constexpr unsigned kVectors = 6;  // the system saves xmm and ymm registers
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSavesState) == 0 || (c & kAvx) == 0)
    return false;
  unsigned kept = 0, high = 0;
  __asm__("xgetbv" : "=a"(kept), "=d"(high) : "c"(0));
  if ((kept & kVectors) != kVectors) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kAvx2) != 0;
}

template <class From, class To>
__attribute__((target("avx2"))) bool both_avx2(const std::byte* tokens, std::uint64_t count,
                                               std::byte* x, std::byte* y) {
  return both<From, To>(tokens, count, x, y);
}

// first, first + 1, ...
__attribute__((target("avx2"))) inline __m256i count_from(std::uint64_t first) {
  return _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                          _mm256_set1_epi32(static_cast<std::int32_t>(first)));
}

__attribute__((target("avx2"))) inline void store(std::int32_t* positions, std::int32_t* numbers,
                                                  std::uint64_t at, __m256i counted, __m256i same) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(positions + at), counted);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(numbers + at), same);
}

// Stores at multiples of 32 bytes: others cross cache lines, as documents begin anywhere. The first
// and the last store overlap their neighbours instead. Both arrays begin alike in a cache line.
__attribute__((target("avx2"))) void number_avx2(std::int32_t* positions, std::int32_t* numbers,
                                                 std::uint64_t count, std::int32_t value) {
  constexpr std::uint64_t kLanes = 8;
  if (count < kLanes) {
    for (std::uint64_t i = 0; i < count; ++i) {
      positions[i] = static_cast<std::int32_t>(i);
      numbers[i] = value;
    }
    return;
  }
  const __m256i same = _mm256_set1_epi32(value);
  store(positions, numbers, 0, count_from(0), same);
  const auto address = reinterpret_cast<std::uintptr_t>(positions) / sizeof *positions;
  std::uint64_t i = kLanes - address % kLanes;
  __m256i even = count_from(i), odd = count_from(i + kLanes);
  const __m256i step = _mm256_set1_epi32(2 * kLanes);
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    store(positions, numbers, i, even, same);
    store(positions, numbers, i + kLanes, odd, same);
    even = _mm256_add_epi32(even, step);
    odd = _mm256_add_epi32(odd, step);
  }
  if (i + kLanes <= count) store(positions, numbers, i, even, same);
  store(positions, numbers, count - kLanes, count_from(count - kLanes), same);
}
#endif

bool use_avx2() {
#if defined(__x86_64__)
  static const bool has = processor_has_avx2();
  return has;
#else
  return false;
#endif
}

template <class From, class To>
bool dispatch(const std::byte* tokens, std::uint64_t count, std::byte* x, std::byte* y) {
#if defined(__x86_64__)
  if (use_avx2()) return both_avx2<From, To>(tokens, count, x, y);
#endif
  return both_plain<From, To>(tokens, count, x, y);
}

template <class From>
bool from(const std::byte* tokens, std::uint64_t count, DType out, std::byte* x, std::byte* y) {
  if (out == DType::of<std::int64_t>()) return dispatch<From, std::int64_t>(tokens, count, x, y);
  return dispatch<From, std::int32_t>(tokens, count, x, y);
}

}  // namespace

void number_document(std::int32_t* positions, std::int32_t* numbers, std::uint64_t count,
                     std::int32_t value) {
#if defined(__x86_64__)
  if (use_avx2()) return number_avx2(positions, numbers, count, value);
#endif
  std::iota(positions, positions + count, 0);
  std::fill(numbers, numbers + count, value);
}

const char* widened_by() { return use_avx2() ? "AVX2" : "plain"; }

bool can_widen(DType stored, DType out) {
  if (stored.kind != DTypeKind::kInt && stored.kind != DTypeKind::kUint) return false;
  return stored == out || out == DType::of<std::int64_t>() || out == DType::of<std::int32_t>();
}

bool widen_xy(DType stored, const std::byte* tokens, std::uint64_t count, DType out, std::byte* x,
              std::byte* y) {
  if (count == 0) return true;  // memcpy does not allow a null pointer, even for 0 bytes
  if (stored == out) {
    std::memcpy(x, tokens, count * stored.size);
    std::memcpy(y, tokens + stored.size, count * stored.size);
    return true;
  }
  const bool is_signed = stored.kind == DTypeKind::kInt;
  switch (stored.size) {
    case 1:
      return is_signed ? from<std::int8_t>(tokens, count, out, x, y)
                       : from<std::uint8_t>(tokens, count, out, x, y);
    case 2:
      return is_signed ? from<std::int16_t>(tokens, count, out, x, y)
                       : from<std::uint16_t>(tokens, count, out, x, y);
    case 4:
      return is_signed ? from<std::int32_t>(tokens, count, out, x, y)
                       : from<std::uint32_t>(tokens, count, out, x, y);
    default:
      return is_signed ? from<std::int64_t>(tokens, count, out, x, y)
                       : from<std::uint64_t>(tokens, count, out, x, y);
  }
}

}  // namespace evenkeel
