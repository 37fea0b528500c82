// The schema of an Arrow table: which columns can be read, and which buffers of a record batch
// belong to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/dtype.h"
#include "format/flatbuffer.h"

namespace evenkeel {

// A column of fixed-width numbers, of fixed-size lists of them, or of lists of either.
struct ArrowColumn {
  std::string name;
  std::string type;                     // "int64", "list of int32"
  std::string refused;                  // why it cannot be read
  DType dtype;                          // of the numbers
  std::vector<std::uint64_t> lengths;   // of fixed-size lists, from the outside in
  std::uint32_t list_offset_bytes = 0;  // 4 or 8: rows are lists; 0: they are not
  // The index of its first node and buffer. Each of the `views_before` columns of views before it
  // has additional buffers; the batch says how many.
  std::uint64_t first_node = 0, first_buffer = 0, views_before = 0;
};

struct ArrowSchema {
  bool big_endian = false;
  std::vector<ArrowColumn> columns;
};

// `version_4`: of the metadata; unions and run-end-encoded columns then have one more buffer.
// Throws Error (kFormat).
ArrowSchema read_arrow_schema(const FlatTable& schema, bool version_4);

}  // namespace evenkeel
