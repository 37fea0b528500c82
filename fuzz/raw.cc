// Raw binary: any dtype, shape and offset, with files of any length.
#include "format/raw.h"

#include "fuzz/layout_promises.h"
#include "fuzz/memory_file.h"

namespace evenkeel::fuzz {
namespace {

DType any_dtype(Input& input) {
  const auto kind = static_cast<DTypeKind>(input.upto(static_cast<unsigned>(DTypeKind::kRecord)));
  const std::uint64_t size = input.any_size();
  if (kind == DTypeKind::kRecord) return {kind, static_cast<std::uint32_t>(size | 1)};
  if (kind == DTypeKind::kComplex) return {kind, 8u << (size & 1)};
  return {kind, 1u << (size & 3)};
}

FUZZ_TARGET(raw) {
  static const MemoryFile file;
  file.resize(input.any_size() % kLongestFile);
  FormatOptions options;
  options.dtype = any_dtype(input);
  options.offset = input.any_size();
  options.big_endian = input.flag();
  for (std::uint64_t axes = input.upto(6); axes > 0; --axes) {
    options.shape.push_back(
        static_cast<std::int64_t>(input.flag() ? UINT64_MAX : input.any_size()));
  }
  refused([&] {
    const Layout layout = read_layout({file.path()}, options);
    check_layout(layout);
    MUST(layout.dtype == *options.dtype);
    if (options.shape.empty() || options.shape[0] < 0) return;
    MUST(layout.rows == static_cast<std::uint64_t>(options.shape[0]));
  });
}

}  // namespace
}  // namespace evenkeel::fuzz
