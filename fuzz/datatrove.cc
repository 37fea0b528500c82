// datatrove's index of document ends, with a token file of any length.
#include "format/datatrove.h"

#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

FUZZ_TARGET(datatrove) {
  static const MemoryFile index, bin;
  TokenFormatOptions options;
  if (input.flag()) options.dtype = DType{DTypeKind::kUint, 2};
  const std::uint64_t bytes = input.any_size() % kLongestFile;
  bin.resize(bytes);
  index.hold(input.rest());
  refused([&] {
    const TokenPart tokens = read_datatrove(bin.path(), index.path(), options);
    MUST(tokens.part.row_bytes * tokens.part.segment.rows == bytes);
    MUST(tokens.documents == input.rest().size() / 8);
    if (options.dtype) MUST(tokens.part.dtype == *options.dtype);
  });
}

}  // namespace
}  // namespace evenkeel::fuzz
