// Several files as one array: they agree, or opening fails.
#include "format/layout.h"

#include "fuzz/layout_promises.h"
#include "fuzz/memory_file.h"

namespace evenkeel::fuzz {
namespace {

FUZZ_TARGET(layout) {
  static const MemoryFile files[3];
  FormatOptions options;
  if (input.flag()) options.dtype = DType{DTypeKind::kUint, 1u << input.upto(3)};
  if (input.flag()) options.shape = {-1, static_cast<std::int64_t>(input.upto(9))};
  options.offset = input.upto(255);
  std::vector<std::string> paths;
  std::uint64_t alone = 0;  // rows of the files, each opened alone
  for (const MemoryFile& file : files) {
    paths.push_back(file.hold(input.text(400)));
    refused([&] { alone += read_layout({paths.back()}, options).rows; });
  }
  refused([&] {
    const Layout layout = read_layout(paths, options);
    check_layout(layout);
    MUST(layout.rows == alone);
    MUST(layout.paths == paths);
  });
}

}  // namespace
}  // namespace evenkeel::fuzz
