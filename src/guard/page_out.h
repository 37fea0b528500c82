#pragma once

#include <sys/mman.h>

namespace evenkeel {

#ifdef MADV_PAGEOUT
inline constexpr int kPageOut = MADV_PAGEOUT;
#else
inline constexpr int kPageOut = 21;  // Linux 5.4; older headers lack the name
#endif

}  // namespace evenkeel
