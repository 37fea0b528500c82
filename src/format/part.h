// What one file of an array contains. read_layout joins the parts of several files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/layout.h"
#include "format/source.h"

namespace evenkeel {

// kEither: the array is the same in both orders (one row, one column, empty), so it can be joined
// to arrays of either order.
enum class Storage : std::uint8_t { kEither, kC, kFortran };

struct Part {
  std::string_view format;
  DType dtype;
  bool swapped = false;
  Storage storage = Storage::kC;
  std::vector<std::uint64_t> shape;
  std::uint64_t row_bytes = 0;
  Segment segment;  // first_row is set by append()
  // See Layout. Rows, lists and values count from those of this part; segments are set by append().
  std::vector<Stretch> stretches = {};
  std::vector<OffsetBatch> offset_batches = {};
};

struct Measure {
  std::uint64_t rows = 0, row_bytes = 0, bytes = 0;
};
// Empty if a product exceeds 2^63-1, the largest file offset.
std::optional<Measure> measure(const std::vector<std::uint64_t>& shape, std::uint32_t item_size);

// The storage order of an array of this shape whose header says `fortran`.
Storage storage_of(const std::vector<std::uint64_t>& shape, bool fortran);

// Whether numbers stored in this byte order must be swapped on this machine.
bool needs_swap(DType dtype, bool big_endian);

// "little-endian numbers" or "big-endian numbers", as they are stored in the file.
const char* byte_order(bool swapped);

// An array of at most this many files keeps their descriptors from open (Segment::kept).
inline constexpr std::size_t kMostKeptFiles = 8;

// Appends the part's rows to the layout. Throws Error (kFormat) if the total exceeds 2^64-1 bytes.
void append(Layout& layout, Part part);

// In Python's notation: "()", "(5,)", "(3, 4)".
template <class T>
std::string shape_text(const std::vector<T>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

// Makes bytes from a file safe to print: bytes that are not printable ASCII become \xNN, and long
// text is cut.
std::string printable(std::string_view bytes);

}  // namespace evenkeel
