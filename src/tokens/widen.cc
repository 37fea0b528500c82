#include "tokens/widen.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstring>
#include <limits>
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

__attribute__((target("avx2"))) void fill_avx2(std::int32_t* out, std::uint64_t count,
                                               std::int32_t value) {
  for (std::uint64_t i = 0; i < count; ++i) out[i] = value;
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

void fill_numbers(std::int32_t* out, std::uint64_t count, std::int32_t value) {
#if defined(__x86_64__)
  if (use_avx2()) return fill_avx2(out, count, value);
#endif
  std::fill(out, out + count, value);
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
