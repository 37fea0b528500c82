// For tests: which sanitizer, if any, is watching.
#pragma once

#if defined(__has_feature)
#define EVENKEEL_HAS_FEATURE(name) __has_feature(name)
#else
#define EVENKEEL_HAS_FEATURE(name) 0
#endif

namespace evenkeel {

// Ends children that start threads after a fork.
#if defined(__SANITIZE_THREAD__) || EVENKEEL_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kUnderTsan = true;
#else
inline constexpr bool kUnderTsan = false;
#endif

// Its allocator may be locked by another thread at fork.
#if defined(__SANITIZE_ADDRESS__) || EVENKEEL_HAS_FEATURE(address_sanitizer)
inline constexpr bool kUnderAsan = true;
#else
inline constexpr bool kUnderAsan = false;
#endif

// Then a statistic needs no second opinion: memory is what is looked at.
inline constexpr bool kSanitized = kUnderAsan || kUnderTsan;

}  // namespace evenkeel
