// Megatron's index, with a .bin of any length.
#include "format/megatron.h"

#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

FUZZ_TARGET(megatron) {
  static const MemoryFile index, bin;
  TokenFormatOptions options;
  if (input.flag()) options.dtype = DType{DTypeKind::kInt, 4};
  const std::uint64_t bytes = input.any_size() % kLongestFile;
  bin.resize(bytes);
  index.hold(input.rest());
  refused([&] {
    const Source source = open_even_empty(index.path());
    const TokenPart tokens = read_megatron(source, bin.path(), options);
    MUST(tokens.part.row_bytes * tokens.part.segment.rows == bytes);
    MUST(tokens.documents && *tokens.documents < source.identity.size / 8);
    if (options.dtype) MUST(tokens.part.dtype == *options.dtype);
  });
}

}  // namespace
}  // namespace evenkeel::fuzz
