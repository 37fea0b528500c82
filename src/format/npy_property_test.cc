// A damaged header is read as something consistent or refused.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/checked.h"
#include "format/test_files.h"

namespace evenkeel {
namespace {

class NpyPropertyTest : public FileTest {
 protected:
  // Whether it was read.
  bool read(const std::string& bytes) const {
    Layout layout;
    try {
      layout = read_layout({write("a.npy", bytes)}, {});
    } catch (const Error& error) {
      RC_ASSERT(error.kind() == ErrorKind::kFormat);
      return false;
    }
    RC_ASSERT(layout.row_bytes >= 1u);
    RC_ASSERT(layout.dtype.size >= 1u);
    std::uint64_t product = layout.dtype.size;
    for (const std::uint64_t axis : layout.shape) product = checked_mul(product, axis).value();
    RC_ASSERT(product == layout.bytes());
    RC_ASSERT(layout.segments.size() == (layout.rows ? 1u : 0u));
    for (const Segment& segment : layout.segments) {
      RC_ASSERT(segment.data_offset + layout.bytes() == bytes.size());
      RC_ASSERT(segment.identity.size == bytes.size());
    }
    return true;
  }
};

std::string any_valid_file() {
  const auto version = *rc::gen::inRange(1, 4);
  const auto [descr, size] = *rc::gen::elementOf(std::vector<std::pair<std::string, std::size_t>>{
      {"'<f4'", 4},
      {"'>i8'", 8},
      {"'|b1'", 1},
      {"'<U3'", 12},
      {"[('a', '<f4', (2,)), (('t', 'b'), '|V3'), ('c', [('x', '>u2')])]", 13}});
  const auto axes =
      *rc::gen::resize(4, rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 5)));
  std::size_t data = size;
  std::string shape = "(";
  for (const int axis : axes) {
    data *= static_cast<std::size_t>(axis);
    shape += std::to_string(axis) + ", ";
  }
  return npy_file(npy_header(descr, shape + ")", *rc::gen::arbitrary<bool>()), data, version);
}

RC_GTEST_FIXTURE_PROP(NpyPropertyTest, EveryValidHeaderIsRead, ()) {
  RC_ASSERT(read(any_valid_file()));
}

RC_GTEST_FIXTURE_PROP(NpyPropertyTest, EveryTruncationIsRefused, ()) {
  const std::string bytes = any_valid_file();
  RC_ASSERT(!read(bytes.substr(0, *rc::gen::inRange<std::size_t>(0, bytes.size()))));
}

RC_GTEST_FIXTURE_PROP(NpyPropertyTest, EveryMutationIsReadConsistentlyOrRefused, ()) {
  std::string bytes = any_valid_file();
  const auto edits = *rc::gen::inRange(1, 6);
  for (int i = 0; i < edits; ++i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, bytes.size());
    const auto odd = *rc::gen::oneOf(
        rc::gen::arbitrary<char>(), rc::gen::elementOf(std::string("(){}[],:'\"\\ \n0189-LTF<>|")));
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        bytes[at] = odd;
        break;
      case 1:
        bytes.insert(at, 1, odd);
        break;
      default:
        if (bytes.size() > 1) bytes.erase(at, 1);
    }
  }
  read(bytes);
}

}  // namespace
}  // namespace evenkeel
