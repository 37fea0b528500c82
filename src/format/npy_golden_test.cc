// Headers that NumPy 2.4.6 wrote (bfloat16 by ml_dtypes 0.6.0), and what they must be read as.
#include <gtest/gtest.h>

#include "format/test_files.h"

namespace evenkeel {
namespace {

struct Golden {
  const char* name;
  int version;
  std::size_t length;  // HEADER_LEN as NumPy wrote it: the text, spaces, a newline
  std::string_view text;
  std::size_t data;  // bytes after the header
  const char* dtype;
  bool swapped, fortran;
  std::vector<std::uint64_t> shape;
};

// clang-format off
const Golden kGolden[] = {
    {"Float32C", 1, 118,
     R"({'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), })",
     48, "float32", false, false, {3, 4}},
    {"Uint16Tokens", 1, 118,
     R"({'descr': '<u2', 'fortran_order': False, 'shape': (1000,), })",
     2000, "uint16", false, false, {1000}},
    {"Fortran", 1, 118,
     R"({'descr': '<f8', 'fortran_order': True, 'shape': (3, 4), })",
     96, "float64", false, true, {3, 4}},
    {"FortranOfOneRowIsSavedAsC", 1, 118,
     R"({'descr': '<f8', 'fortran_order': False, 'shape': (1, 4), })",
     32, "float64", false, false, {1, 4}},
    {"BigEndian", 1, 118,
     R"({'descr': '>i4', 'fortran_order': False, 'shape': (2, 2), })",
     16, "int32", true, false, {2, 2}},
    {"BigEndianComplex", 1, 118,
     R"({'descr': '>c16', 'fortran_order': False, 'shape': (2,), })",
     32, "complex128", true, false, {2}},
    {"NoAxes", 1, 118,
     R"({'descr': '<i8', 'fortran_order': False, 'shape': (), })",
     8, "int64", false, false, {}},
    {"NoRows", 1, 118,
     R"({'descr': '<f2', 'fortran_order': False, 'shape': (0, 5), })",
     0, "float16", false, false, {0, 5}},
    {"Bool", 1, 118,
     R"({'descr': '|b1', 'fortran_order': False, 'shape': (7,), })",
     7, "bool", false, false, {7}},
    {"Bytes", 1, 118,
     R"({'descr': '|S3', 'fortran_order': False, 'shape': (2,), })",
     6, "record[3]", false, false, {2}},
    {"Text", 1, 118,
     R"({'descr': '<U5', 'fortran_order': False, 'shape': (2,), })",
     40, "record[20]", false, false, {2}},
    {"Dates", 1, 118,
     R"({'descr': '<M8[ns]', 'fortran_order': False, 'shape': (2,), })",
     16, "record[8]", false, false, {2}},
    {"DatesBySteps", 1, 118,
     R"({'descr': '<m8[25s]', 'fortran_order': False, 'shape': (2,), })",
     16, "record[8]", false, false, {2}},
    {"Bfloat16", 1, 118,
     R"({'descr': '<V2', 'fortran_order': False, 'shape': (4,), })",
     8, "record[2]", false, false, {4}},
    {"Structured", 1, 182,
     R"({'descr': [('a', '<f4', (2, 3)), (('a title', 'b'), '>i2'), ('c', [('x', '|u1'), ('y', '<U2')])], 'fortran_order': False, 'shape': (2,), })",
     70, "record[35]", false, false, {2}},
    {"StructuredWithPadding", 1, 118,
     R"({'descr': [('a', '|u1'), ('', '|V7'), ('b', '<f8')], 'fortran_order': False, 'shape': (2,), })",
     32, "record[16]", false, false, {2}},
    {"NamesWithEscapes", 1, 118,
     R"({'descr': [("q'\\\n\x01", '|u1'), ('d"q', '<u2')], 'fortran_order': False, 'shape': (2,), })",
     6, "record[3]", false, false, {2}},
    {"Version2", 2, 116,
     R"({'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), })",
     24, "float32", false, false, {2, 3}},
    {"Version3", 3, 116,
     R"({'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), })",
     24, "float32", true, false, {2, 3}},
    {"Version3WithUnicodeNames", 3, 116,
     R"({'descr': [('größe', '<f4'), ('温度', '<i8')], 'fortran_order': False, 'shape': (3,), })",
     36, "record[12]", false, false, {3}},
};
// clang-format on

class NpyGoldenTest : public FileTest, public ::testing::WithParamInterface<Golden> {};

TEST_P(NpyGoldenTest, ReadsWhatNumpyWrote) {
  const Golden& golden = GetParam();
  std::string header(golden.text);
  header.append(golden.length - header.size() - 1, ' ').append("\n");
  const std::string bytes = npy_file(header, golden.data, golden.version);
  const Layout layout = read_layout({write("golden.npy", bytes)}, {});
  EXPECT_EQ(layout.format, "npy");
  EXPECT_EQ(layout.dtype.name(), golden.dtype);
  EXPECT_EQ(layout.swapped, golden.swapped);
  EXPECT_EQ(layout.fortran, golden.fortran);
  EXPECT_EQ(layout.shape, golden.shape);
  EXPECT_EQ(layout.bytes(), golden.data);
  if (golden.data == 0) {
    EXPECT_TRUE(layout.segments.empty());
  } else {
    EXPECT_EQ(layout.segments.at(0).data_offset, bytes.size() - golden.data);
  }
}

INSTANTIATE_TEST_SUITE_P(NumPy, NpyGoldenTest, ::testing::ValuesIn(kGolden),
                         [](const auto& golden) { return golden.param.name; });

}  // namespace
}  // namespace evenkeel
