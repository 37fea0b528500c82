// Whether rows can be read without waiting for a disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "array/impl.h"

namespace evenkeel {

// Whether all files are on local filesystems, where fstat and mincore do not wait. Looks the files
// up by path, so this call may wait itself.
bool on_local_filesystems(const Array::Impl& array);

// Copies some rows from a mapped file if they are in memory now. Otherwise, and while the array
// changes its engine, it does nothing and returns false. If the user neither owns a file nor may
// write it, the kernel reports all its pages as in memory. Use this only for a few rows, because it
// checks each page, and only for arrays on local filesystems, because it checks the state of the
// file.
bool read_if_resident(const Array::Impl& array, std::uint64_t first, std::uint64_t count,
                      std::span<std::byte> out);

// Whether rows are known to be in memory, so that copying them does not wait. Always false unless
// page_cache is "fill", whose engine tracks this.
bool known_in_memory(const Array::Impl& array, std::span<const std::uint64_t> rows);

// Whether rows of an array that is not mapped are in the page cache now. False if the kernel does
// not report it.
bool in_page_cache(const Array::Impl& array, std::uint64_t first, std::uint64_t count);

}  // namespace evenkeel
