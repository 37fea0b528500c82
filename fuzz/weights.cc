// Headers of safetensors and GGUF, and the index of shards, in files of any length.
#include "evenkeel/weights.h"

#include "format/tensor_table.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

FUZZ_TARGET(weights) {
  static const MemoryFile file;
  const Budget budget(64_MiB);
  const bool gguf = input.flag(), index = input.flag();
  const std::uint64_t hole = input.any_size() % kLongestFile;
  const std::uint64_t size = input.rest().size() + hole;
  if (size == 0) return;
  file.hold(input.rest());
  file.resize(size);
  refused([&] {
    if (index) {
      for (const std::string& path : read_safetensors_index(file.path(), budget).files) {
        MUST(path.starts_with("/proc/self/fd/"));
        MUST(path.find('/', std::string_view("/proc/self/fd/").size()) == path.npos);
      }
      return;
    }
    const Source source = open_source(file.path());
    const TensorTable table = gguf ? read_gguf(source, budget) : read_safetensors(source, budget);
    std::uint64_t end = 0;
    for (const Tensor& tensor : table.tensors) {
      MUST(tensor.bytes == 0 || tensor.offset >= end);
      MUST(tensor.offset <= size && tensor.bytes <= size - tensor.offset);
      end = std::max(end, tensor.offset + tensor.bytes);
    }
  });
  MUST(budget.in_use() == 0);
}

}  // namespace
}  // namespace evenkeel::fuzz
