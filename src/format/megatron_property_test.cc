// If an .idx is damaged, the stream stays the same or is refused.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "format/token_test_files.h"

namespace evenkeel {
namespace {

class MegatronPropertyTest : public TokenFileTest {};

MegatronIndex any_index() {
  MegatronIndex index = MegatronIndex::of(
      *rc::gen::resize(12, rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange(0, 6))));
  if (*rc::gen::arbitrary<bool>()) index.modes = std::string(index.sequences, '\1');
  return index;
}

std::uint64_t tokens_of(const MegatronIndex& index) {
  std::uint64_t tokens = 0;
  for (const std::int64_t length : index.lengths) tokens += static_cast<std::uint64_t>(length);
  return tokens;
}

RC_GTEST_FIXTURE_PROP(MegatronPropertyTest, EveryMutationGivesTheSameStreamOrAnError, ()) {
  const MegatronIndex index = any_index();
  const std::uint64_t count = tokens_of(index) + 3;
  std::string bytes = index.bytes();
  const auto edits = *rc::gen::inRange(0, 5);
  for (int i = 0; i < edits && !bytes.empty(); ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
    const auto odd = *rc::gen::oneOf(
        rc::gen::arbitrary<char>(), rc::gen::elementOf(std::string("\0\1\2\4\x08\x7f\x80\xff", 8)));
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        bytes.insert(at, 1, odd);
        break;
      case 1:
        bytes.erase(at, 1);
        break;
      default:
        bytes[at] = odd;
    }
  }
  write("a.bin", counting<std::uint16_t>(0, count - 3));
  write("a.idx", bytes);
  // A second shard, so that a pair without tokens is read too.
  const auto tail = write("tail.bin", counting<std::uint16_t>(count - 3, 3));
  TokenLayout tokens;
  try {
    tokens = open({path("a.idx"), tail}, {.dtype = kU16});
  } catch (const Error& error) {
    RC_ASSERT(error.kind() == ErrorKind::kFormat || error.kind() == ErrorKind::kInvalid);
    RC_ASSERT(edits > 0);
    return;
  }
  RC_ASSERT(tokens.layout.dtype == kU16);
  RC_ASSERT(tokens.layout.rows == count);
  RC_ASSERT(payload(tokens.layout) == counting<std::uint16_t>(0, count));
}

}  // namespace
}  // namespace evenkeel
