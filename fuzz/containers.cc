// Arrow tables, .npz archives, FITS and NIfTI images, in files of any length.
#include "format/container.h"
#include "fuzz/layout_promises.h"
#include "fuzz/memory_file.h"

namespace evenkeel::fuzz {
namespace {

FUZZ_TARGET(containers) {
  static const MemoryFile file;
  const std::string name(input.flag() ? input.text(12) : std::string_view());
  const std::uint64_t hole = input.flag() ? input.any_size() % kLongestFile : 0;
  const std::string_view bytes = input.rest();
  if (bytes.empty()) return;
  file.hold(bytes);
  file.resize(bytes.size() + hole);
  refused([&] {
    const Source source = open_source(file.path());
    const std::string head = source.read(0, kHeadBytes);
    if (!is_container(head)) return;
    for (const Member& member : members_of(source, head, /*count_rows=*/true)) {
      if (!member.refused.empty()) continue;
      for (const char* end : {"", ".values", ".offsets"}) {
        refused([&] { check_layout(read_layout({file.path()}, {.name = member.name + end})); });
      }
    }
  });
  refused([&] { check_layout(read_layout({file.path()}, {.name = name})); });
}

}  // namespace
}  // namespace evenkeel::fuzz
