// Prefetches memory that is about to be read.
#pragma once

#include <cstddef>

namespace evenkeel {

// Prefetches `bytes` bytes at `address` into the processor's caches. Never faults, even if the
// memory was freed.
inline void prefetch_memory(const void* address, std::size_t bytes) {
  constexpr std::size_t kCacheLine = 64;
  const char* const begin = static_cast<const char*>(address);
  for (std::size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(begin + at);
}

}  // namespace evenkeel
