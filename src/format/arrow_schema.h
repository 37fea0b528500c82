// The schema of an Arrow table: which columns can be read, and where their buffers stand among
// those of a record batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evenkeel/dtype.h"
#include "format/flatbuffer.h"

namespace evenkeel {

// Numbers of fixed width, lists of a fixed number of them, or lists of either.
struct ArrowColumn {
  std::string name;
  std::string type;                     // "int64", "list of int32"
  std::string refused;                  // why it cannot be read
  DType dtype;                          // of the numbers
  std::vector<std::uint64_t> lengths;   // of lists of a fixed number, from outside to inside
  std::uint32_t list_offset_bytes = 0;  // 4 or 8: rows are lists; 0: they are not
  // Where its nodes and buffers begin. Columns of views before it add as many more buffers as the
  // batch says.
  std::uint64_t first_node = 0, first_buffer = 0, views_before = 0;
};

struct ArrowSchema {
  bool big_endian = false;
  std::vector<ArrowColumn> columns;
};

// `old_unions`: of metadata version 4, where unions have one buffer more. Throws Error (kFormat).
ArrowSchema read_arrow_schema(const FlatTable& schema, bool old_unions);

}  // namespace evenkeel
