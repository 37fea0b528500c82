// NPY: the header is the input. If it is valid, the file is made as long as it claims, and reading
// it must then succeed.
#include "format/npy.h"

#include "fuzz/layout_promises.h"
#include "fuzz/memory_file.h"

namespace evenkeel::fuzz {
namespace {

// The file length that the header claims; empty if no such file can exist or be read.
std::optional<std::uint64_t> claimed_bytes(const NpyHeader& header) {
  const auto size = measure(header.shape, header.element.dtype.size);
  if (!size || size->bytes > kLongestFile || !header.element.supported) return std::nullopt;
  if (size->row_bytes == 0) return std::nullopt;
  return header.data_offset + size->bytes;
}

std::optional<NpyHeader> header_of(const std::string& path) {
  std::optional<NpyHeader> header;
  refused([&] {
    const Source source = open_source(path);
    const std::string head = source.read(0, kHeadBytes);
    if (is_npy(head)) header = read_npy_header(source, head);
  });
  return header;
}

FUZZ_TARGET(npy) {
  static const MemoryFile file;
  const std::string& path = file.hold(input.rest());
  refused([&] { check_layout(read_layout({path}, {})); });
  const auto header = header_of(path);
  const auto bytes = header ? claimed_bytes(*header) : std::nullopt;
  if (!bytes) return;
  file.resize(*bytes);
  const Layout layout = read_layout({path}, {});
  check_layout(layout);
  MUST(layout.shape == header->shape);
  // A dtype of the same size replaces the header's; a dtype of another size is an error.
  const std::uint32_t size = layout.dtype.size;
  MUST(read_layout({path}, {.dtype = DType{DTypeKind::kRecord, size}}).dtype.size == size);
  if (size < UINT32_MAX) {
    MUST(refused([&] { read_layout({path}, {.dtype = DType{DTypeKind::kRecord, size + 1}}); }));
  }
}

}  // namespace
}  // namespace evenkeel::fuzz
