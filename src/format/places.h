// Arrays whose rows were located by another library: chunks of HDF5 and Zarr, rows of shards.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/layout.h"

namespace evenkeel {

// `rows` contiguous rows that begin at `offset` of a file.
struct RowPlace {
  std::uint64_t file = 0, offset = 0, rows = 0;
};

// An array in C order whose rows lie at these places, one place after the other. The places are not
// trusted: each is checked. Throws Error (kInvalid, kFormat, kSystem).
Layout layout_of_places(const std::string& format, const std::vector<std::string>& files,
                        std::span<const RowPlace> places, DType dtype, bool big_endian,
                        std::vector<std::uint64_t> shape);

}  // namespace evenkeel
