// When a file was last changed, as a number to compare.
#pragma once

#include <sys/stat.h>

#include <cstdint>

namespace evenkeel {

// Nanoseconds since 1970. Anyone may set a time, also one whose nanoseconds do not fit (beyond the
// year 2262): it then wraps, and still tells whether it is the same.
inline std::int64_t modified_ns(const struct stat& status) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(status.st_mtim.tv_sec) *
                                       1'000'000'000 +
                                   static_cast<std::uint64_t>(status.st_mtim.tv_nsec));
}

}  // namespace evenkeel
