// Token files recognized by their magic: llm.c shards, NPY, bare tokens.
#include "format/token_layout.h"
#include "fuzz/layout_promises.h"
#include "fuzz/memory_file.h"

namespace evenkeel::fuzz {
namespace {

constexpr std::uint32_t kSizes[] = {1, 2, 4, 8};

FUZZ_TARGET(tokens) {
  static const MemoryFile files[2];
  TokenFormatOptions options;
  const std::uint64_t choice = input.upto(15);
  if (choice >= 8)
    options.dtype = DType{choice & 4 ? DTypeKind::kInt : DTypeKind::kUint, kSizes[choice & 3]};
  const std::uint64_t beyond = input.any_size() % (kLongestFile / 2);
  const bool two = input.flag();
  const std::string_view half = two ? input.text(2000) : "";
  std::vector<std::string> paths = {files[0].hold(input.rest())};
  if (beyond > 0) files[0].resize(input.rest().size() + beyond);
  if (two) paths.push_back(files[1].hold(half));
  refused([&] {
    const TokenLayout tokens = read_token_layout(paths, options);
    check_layout(tokens.layout);
    MUST(tokens.layout.rows > 0);
    MUST(tokens.layout.shape.size() == 1);
    MUST(!tokens.detail.empty());
    const DTypeKind kind = tokens.layout.dtype.kind;
    MUST(kind == DTypeKind::kInt || kind == DTypeKind::kUint);
    if (options.dtype) MUST(tokens.layout.dtype == *options.dtype);
  });
}

}  // namespace
}  // namespace evenkeel::fuzz
