#include "format/part.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/checked.h"

namespace evenkeel {
namespace {

std::optional<std::uint64_t> times(std::optional<std::uint64_t> a, std::uint64_t b) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto product = a ? checked_mul(*a, b) : std::nullopt;
  return product && *product <= kMost ? product : std::nullopt;
}

}  // namespace

std::optional<Measure> measure(const std::vector<std::uint64_t>& shape, std::uint32_t item_size) {
  const std::uint64_t rows = shape.empty() ? 1 : shape[0];
  std::optional<std::uint64_t> row_bytes = item_size;
  for (std::size_t axis = 1; axis < shape.size(); ++axis) row_bytes = times(row_bytes, shape[axis]);
  const auto bytes = times(row_bytes, rows);
  if (!bytes) return std::nullopt;
  return Measure{rows, *row_bytes, *bytes};
}

Storage storage_of(const std::vector<std::uint64_t>& shape, bool fortran) {
  const auto wide = std::count_if(shape.begin(), shape.end(), [](auto n) { return n != 1; });
  if (wide <= 1 || (!shape.empty() && shape[0] == 0)) return Storage::kEither;
  return fortran ? Storage::kFortran : Storage::kC;
}

bool needs_swap(DType dtype, bool big_endian) {
  return dtype.swap_unit() > 1 && big_endian != (std::endian::native == std::endian::big);
}

std::string printable(std::string_view bytes) {
  constexpr std::size_t kMost = 64;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (const char c : bytes.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return bytes.size() > kMost ? text + "..." : text;
}

}  // namespace evenkeel
