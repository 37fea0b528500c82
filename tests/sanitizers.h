// For tests: which sanitizer this program was built with.
#pragma once

#if defined(__has_feature)
#define EVENKEEL_HAS_FEATURE(name) __has_feature(name)
#else
#define EVENKEEL_HAS_FEATURE(name) 0
#endif

namespace evenkeel {

// It ends children of fork that start threads.
#if defined(__SANITIZE_THREAD__) || EVENKEEL_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kUnderTsan = true;
#else
inline constexpr bool kUnderTsan = false;
#endif

// Another thread may hold the lock of its allocator during fork.
#if defined(__SANITIZE_ADDRESS__) || EVENKEEL_HAS_FEATURE(address_sanitizer)
inline constexpr bool kUnderAsan = true;
#else
inline constexpr bool kUnderAsan = false;
#endif

// Tests of statistics may then take fewer samples: the sanitizers check memory, not figures.
inline constexpr bool kSanitized = kUnderAsan || kUnderTsan;

}  // namespace evenkeel
