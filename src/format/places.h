// Arrays whose places in files someone else has found out: chunks of HDF5 and Zarr, rows of shards.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/layout.h"

namespace evenkeel {

// `rows` rows that lie together from `offset` of a file on.
struct RowPlace {
  std::uint64_t file = 0, offset = 0, rows = 0;
};

// An array in C order whose rows lie at these places, one place after the other. Checks everything:
// the places may come from anywhere. Throws Error (kInvalid, kFormat, kSystem).
Layout layout_of_places(const std::string& format, const std::vector<std::string>& files,
                        std::span<const RowPlace> places, DType dtype, bool big_endian,
                        std::vector<std::uint64_t> shape);

}  // namespace evenkeel
