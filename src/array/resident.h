// Whether rows can be read without waiting for a disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "array/impl.h"

namespace evenkeel {

// Whether all files lie on local filesystems, where asking for the state of an open file does not
// wait. Looks at the files by their paths, so it may wait itself.
bool on_local_filesystems(const Array::Impl& array);

// Copies some rows out of a mapped file if they are in memory now; else, and while the array
// changes its engine, it does nothing and returns false. Of a file that the user neither owns nor
// may write, the kernel says that all pages are in memory. For few rows, because it looks at each
// page; and for arrays on local filesystems, because it asks for the state of the file.
bool read_if_resident(const Array::Impl& array, std::uint64_t first, std::uint64_t count,
                      std::span<std::byte> out);

// Whether rows are known to be in memory, so that copying them waits for nothing: only with
// page_cache "fill", which keeps such books.
bool known_in_memory(const Array::Impl& array, std::span<const std::uint64_t> rows);

// Whether rows of an array that is not mapped are in the page cache now. False where the kernel
// does not say.
bool in_page_cache(const Array::Impl& array, std::uint64_t first, std::uint64_t count);

}  // namespace evenkeel
