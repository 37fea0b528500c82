// Whether rows can be read without waiting for a disk.
#pragma once

#include <cstdint>

#include "array/impl.h"

namespace evenkeel {

// Whether some rows lie in a mapped file and are in memory now. Of a file that the user neither
// owns nor may write, the kernel says that all pages are. For few rows: it looks at each page.
bool rows_are_resident(const Array::Impl& array, std::uint64_t first, std::uint64_t count);

}  // namespace evenkeel
