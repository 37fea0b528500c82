#include "write/npy_header.h"

#include <algorithm>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {

std::string npy_descr_text(DType dtype) {
  switch (dtype.kind) {
    case DTypeKind::kBool:
      return "'|b1'";
    case DTypeKind::kRecord:
      return "'|V" + std::to_string(dtype.size) + "'";
    case DTypeKind::kBfloat:
      return "'<V2'";  // as ml_dtypes writes it
    default:
      break;
  }
  const char kind = dtype.kind == DTypeKind::kInt     ? 'i'
                    : dtype.kind == DTypeKind::kUint  ? 'u'
                    : dtype.kind == DTypeKind::kFloat ? 'f'
                                                      : 'c';
  return std::string("'") + (dtype.size == 1 ? '|' : '<') + kind + std::to_string(dtype.size) + "'";
}

std::string npy_header_bytes(const std::string& descr, const std::vector<std::uint64_t>& shape) {
  constexpr std::size_t kAlign = 64, kDigits = 21;
  std::string text = "{'descr': " + descr + ", 'fortran_order': False, 'shape': (";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  text += shape.size() == 1 ? ",), }" : "), }";
  // Room for the first axis to grow.
  if (!shape.empty())
    text.append(kDigits - std::min(kDigits, std::to_string(shape[0]).size()), ' ');
  const bool ascii = std::ranges::all_of(text, [](char c) { return (c & 0x80) == 0; });
  const auto with_version = [&](char version, std::size_t length_bytes) {
    const std::size_t before = 8 + length_bytes;
    const std::size_t padding = kAlign - (before + text.size() + 1) % kAlign;
    const std::size_t length = text.size() + padding + 1;
    std::string bytes = "\x93NUMPY";
    bytes += version;
    bytes += '\0';
    for (std::size_t i = 0; i < length_bytes; ++i) {
      bytes += static_cast<char>(length >> (8 * i) & 255);
    }
    return bytes + text + std::string(padding, ' ') + "\n";
  };
  if (!ascii) return with_version(3, 4);
  std::string bytes = with_version(1, 2);
  return bytes.size() - 10 < 65536 ? bytes : with_version(2, 4);
}

}  // namespace evenkeel
