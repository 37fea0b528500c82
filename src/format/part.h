// What one file of an array says; read_layout puts parts together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "format/layout.h"
#include "format/source.h"

namespace evenkeel {

// An array that is the same in both orders (one row, one column, nothing) fits beside either.
enum class Storage : std::uint8_t { kEither, kC, kFortran };

struct Part {
  std::string_view format;
  DType dtype;
  bool swapped = false;
  Storage storage = Storage::kC;
  std::vector<std::uint64_t> shape;
  std::uint64_t row_bytes = 0;
  Segment segment;  // first_row is set when parts are put together
};

struct Measure {
  std::uint64_t rows = 0, row_bytes = 0, bytes = 0;
};
// Empty when a product passes 2^63-1, the largest file offset.
std::optional<Measure> measure(const std::vector<std::uint64_t>& shape, std::uint32_t item_size);

// The storage order that a header's fortran_order amounts to for this shape.
Storage storage_of(const std::vector<std::uint64_t>& shape, bool fortran);

// Whether numbers stored in this order must be turned round on this machine.
bool needs_swap(DType dtype, bool big_endian);

// "little-endian numbers" or "big-endian numbers", as they lie in the file.
const char* byte_order(bool swapped);

// An array of at most this many files keeps their descriptors from open (Segment::kept).
inline constexpr std::size_t kMostKeptFiles = 8;

// Adds the part's rows to the end of the layout. Throws Error (kFormat) when the bytes of all pass
// 2^64-1.
void append(Layout& layout, Part part);

// As Python writes it: "()", "(5,)", "(3, 4)".
template <class T>
std::string shape_text(const std::vector<T>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

// Bytes from a file, safe to print: what is not plain ASCII becomes \xNN; long text is cut.
std::string printable(std::string_view bytes);

}  // namespace evenkeel
