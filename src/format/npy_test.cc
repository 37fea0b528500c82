#include "format/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/test_files.h"

namespace evenkeel {
namespace {

using ::testing::HasSubstr;
using Shape = std::vector<std::uint64_t>;

class NpyTest : public FileTest {
 protected:
  Layout open(std::string_view bytes, const FormatOptions& options = {}) const {
    return read_layout({write("a.npy", bytes)}, options);
  }
  std::string dtype_of(std::string_view descr, std::size_t size) const {
    return open(npy_file(npy_header(descr, "(1,)"), size)).dtype.name();
  }
  // The error for a header. The data does not matter.
  std::string why_not(std::string_view header, std::size_t data = 8) const {
    const auto error = refusal(npy_file(header, data));
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_EQ(error.operation(), "open");
    EXPECT_EQ(error.path(), path("refused"));
    return error.what();
  }
};

TEST_F(NpyTest, KeysInAnyOrderAnyQuotesAnyBlanks) {
  const Layout layout =
      open(npy_file("{ \"shape\":(2L ,\n3,) ,'fortran_order' : True,\"descr\":'<f4'}", 24));
  EXPECT_EQ(layout.shape, (Shape{2, 3}));
  EXPECT_TRUE(layout.fortran);
  EXPECT_EQ(layout.dtype.name(), "float32");
}

TEST_F(NpyTest, ElementTypes) {
  EXPECT_EQ(dtype_of("'<f2'", 2), "float16");
  EXPECT_EQ(dtype_of("'f8'", 8), "float64");
  EXPECT_EQ(dtype_of("'=u4'", 4), "uint32");
  EXPECT_EQ(dtype_of("'<b1'", 1), "bool");
  EXPECT_EQ(dtype_of("'|i1'", 1), "int8");
  EXPECT_EQ(dtype_of("'|a4'", 4), "record[4]");
  EXPECT_EQ(dtype_of("'<m8'", 8), "record[8]");
  EXPECT_EQ(dtype_of("('<f4', (2, 2))", 16), "record[16]");
  EXPECT_EQ(dtype_of("[('a', '<f4', 3), ('b', [('c', '|u1')], (2,))]", 14), "record[14]");
  EXPECT_EQ(dtype_of("[(('t', 'a'), ('<f4', (2,))), ('', '|V3')]", 11), "record[11]");
}

TEST_F(NpyTest, RecordsAreLeftAsStored) {
  EXPECT_FALSE(open(npy_file(npy_header("'>U2'", "(1,)"), 8)).swapped);
  EXPECT_FALSE(open(npy_file(npy_header("[('a', '>f8')]", "(1,)"), 8)).swapped);
  EXPECT_TRUE(open(npy_file(npy_header("'>f8'", "(1,)"), 8)).swapped);
}

TEST_F(NpyTest, TheDescrIsHandedOutAsItStands) {
  const auto header_of = [&](std::string_view bytes) {
    const Source source = open_source(write("a.npy", bytes));
    return read_npy_header(source, source.read(0, kHeadBytes));
  };
  const NpyHeader plain = header_of(npy_file(npy_header("'>f4'", "(1,)"), 4));
  EXPECT_EQ(npy_descr(plain).text, ">f4");
  EXPECT_FALSE(plain.utf8);
  const NpyHeader fields =
      header_of(npy_file(npy_header("[('a\\'', '<f4'), ('b', '<i2', (3,))]", "(1,)"), 10));
  const Literal descr = npy_descr(fields);
  ASSERT_EQ(descr.type, Literal::Type::kList);
  ASSERT_EQ(descr.items.size(), 2u);
  EXPECT_EQ(descr.items[0].items[0].text, "a\\'");
  EXPECT_EQ(descr.items[1].items[2].items[0].number, 3u);
  EXPECT_EQ(fields.element.dtype.size, 10u);
}

TEST_F(NpyTest, ShapeWithoutAxesIsOneRow) {
  const Layout layout = open(npy_file(npy_header("'<f8'", "()"), 8));
  EXPECT_TRUE(layout.shape.empty());
  EXPECT_EQ(layout.rows, 1u);
  EXPECT_EQ(layout.row_bytes, 8u);
}

TEST_F(NpyTest, OneAxisHasNoFortranOrder) {
  EXPECT_FALSE(open(npy_file(npy_header("'<f8'", "(2,)", true), 16)).fortran);
  EXPECT_FALSE(open(npy_file(npy_header("'<f8'", "(2, 1)", true), 16)).fortran);
  EXPECT_TRUE(open(npy_file(npy_header("'<f4'", "(1, 2, 2)", true), 16)).fortran);
}

TEST_F(NpyTest, LongHeadersAreReadWhole) {
  std::string header = npy_header("'<f8'", "(2,)");
  header.insert(header.size() - 1, std::string(60'000, ' '));
  EXPECT_EQ(open(npy_file(header, 16)).segments.at(0).data_offset, header.size() + 10);
  header.insert(header.size() - 1, std::string(100'000, ' '));
  EXPECT_EQ(open(npy_file(header, 16, 2)).segments.at(0).data_offset, header.size() + 12);
  header.insert(header.size() - 1, std::string(1 << 20, ' '));
  const auto error = refusal(npy_file(header, 16, 3));
  EXPECT_THAT(error.what(), HasSubstr("1 MiB"));
}

TEST_F(NpyTest, ObjectsAreRefusedBecausePicklesAreNeverExecuted) {
  for (const char* descr :
       {"'|O'", "'O'", "'|O8'", "[('a', '<f4'), ('b', '|O')]", "[('a', [('b', ('|O', (2,)))])]"}) {
    EXPECT_THAT(why_not(npy_header(descr, "(1,)")), HasSubstr("never executed")) << descr;
  }
}

TEST_F(NpyTest, NumbersWithoutANameAreRefusedWithAWayOut) {
  for (const char* descr : {"'<f16'", "'<c32'", "'<f12'", "'|f1'", "'<i16'", "'|b2'"}) {
    const std::string text = why_not(npy_header(descr, "(0,)"), 0);
    EXPECT_THAT(text, HasSubstr("not supported")) << descr;
    EXPECT_THAT(text, HasSubstr("dtype V")) << descr;
  }
  const auto file = npy_file(npy_header("'<f16'", "(2,)"), 32);
  EXPECT_EQ(open(file, {.dtype = DType::parse("V16")}).format, "npy");
}

TEST_F(NpyTest, DataShorterThanPromisedIsTruncated) {
  const auto error = refusal(npy_file(npy_header("'<f8'", "(1000, 2)"), 15'999));
  EXPECT_THAT(error.what(), HasSubstr("truncated"));
  EXPECT_THAT(error.what(), HasSubstr("16,07"));  // the sum of header and data
  EXPECT_THAT(error.hint_text(), HasSubstr("download or copy may be incomplete"));
  EXPECT_TRUE(error.offset());
}

TEST_F(NpyTest, DataLongerThanPromisedIsTooLong) {
  const auto error = refusal(npy_file(npy_header("'<f8'", "(1000,)"), 8'001));
  EXPECT_THAT(error.what(), HasSubstr("too long"));
  EXPECT_THAT(error.hint_text(), HasSubstr("offset="));
}

TEST_F(NpyTest, CutOffHeadersAreTruncated) {
  const std::string whole = npy_file(npy_header("'<f8'", "(1,)"), 0);
  for (std::size_t length = 6; length < whole.size(); ++length) {
    const auto error = refusal(whole.substr(0, length));
    EXPECT_THAT(error.hint_text(), HasSubstr("incomplete")) << length;
  }
}

TEST_F(NpyTest, UnknownVersionsAreRefused) {
  std::string bytes = npy_file(npy_header("'<f8'", "(1,)"), 8);
  for (const char* version : {"\0\0", "\1\1", "\4\0", "\xff\xff"}) {
    bytes.replace(6, 2, version, 2);
    const auto error = refusal(bytes);
    EXPECT_THAT(error.what(), HasSubstr("version"));
  }
}

TEST_F(NpyTest, RowsWithoutBytesAreRefused) {
  for (const char* shape : {"(3, 0)", "(0, 0)", "(3, 4, 0)"}) {
    EXPECT_THAT(why_not(npy_header("'<f8'", shape), 0), HasSubstr("rows hold no bytes"));
  }
}

TEST_F(NpyTest, ProductsThatOverflowAreRefused) {
  for (const char* shape :
       {"(9223372036854775807,)", "(0, 1152921504606846976)", "(4294967296, 4294967296)",
        "(0, 4294967296, 4294967296)", "(2305843009213693952, 8)", "(1152921504606846975,)"}) {
    EXPECT_THAT(why_not(npy_header("'<f8'", shape)), HasSubstr("2^63-1")) << shape;
  }
}

TEST_F(NpyTest, HostileHeadersAreRefusedWithTheirPlace) {
  std::string many_axes;
  for (int i = 0; i < 65; ++i) many_axes += "1,";
  for (const std::string& header : {
           std::string(),
           std::string("\n"),
           std::string("{}"),
           std::string("[]"),
           std::string("'descr'"),
           std::string("{'descr': '<f8'}"),
           std::string("{'descr': '<f8', 'shape': (1,)}"),
           std::string("{'descr': '<f8', 'fortran_order': False}"),
           std::string("{'fortran_order': False, 'shape': (1,)}"),
           std::string("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'x': 1}"),
           std::string("{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (1,)}"),
           std::string("{1: '<f8', 'fortran_order': False, 'shape': (1,)}"),
           std::string("{'\\x64escr': '<f8', 'fortran_order': False, 'shape': (1,)}"),
           std::string("{'descr': '<f8', 'fortran_order': 0, 'shape': (1,)}"),
           std::string("{'descr': '<f8', 'fortran_order': 'False', 'shape': (1,)}"),
           std::string("{'descr': '<f8', 'fortran_order': None, 'shape': (1,)}"),
           std::string("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)} x"),
           std::string("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)\n"),
           std::string("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)}\0\0", 58),
           npy_header("'<f8'", "1"),
           npy_header("'<f8'", "(1)"),
           npy_header("'<f8'", "[1]"),
           npy_header("'<f8'", "(1.0,)"),
           npy_header("'<f8'", "(-1,)"),
           npy_header("'<f8'", "(True,)"),
           npy_header("'<f8'", "('1',)"),
           npy_header("'<f8'", "((1,),)"),
           npy_header("'<f8'", "(1e2,)"),
           npy_header("'<f8'", "(9223372036854775808,)"),
           npy_header("'<f8'", "(0x1,)"),
           npy_header("'<f8'", "None"),
           npy_header("'<f8'", "__import__('os').system('ls')"),
           npy_header("'<f8'", "(" + many_axes + ")"),
           npy_header("8", "(1,)"),
           npy_header("None", "(1,)"),
           npy_header("{}", "(1,)"),
           npy_header("()", "(1,)"),
           npy_header("[]", "(1,)"),
           npy_header("''", "(1,)"),
           npy_header("'<'", "(1,)"),
           npy_header("'f'", "(1,)"),
           npy_header("'<f'", "(1,)"),
           npy_header("'<f-8'", "(1,)"),
           npy_header("'<f8 '", "(1,)"),
           npy_header("'<<f8'", "(1,)"),
           npy_header("'x8'", "(1,)"),
           npy_header("'|T16'", "(1,)"),
           npy_header("'float64'", "(1,)"),
           npy_header("'|V0'", "(1,)"),
           npy_header("'<U0'", "(1,)"),
           npy_header("'|S'", "(1,)"),
           npy_header("'<U1073741824'", "(1,)"),
           npy_header("'|V4294967296'", "(1,)"),
           npy_header("'|V99999999999999999999'", "(1,)"),
           npy_header("'<M4'", "(1,)"),
           npy_header("'<M8[ns'", "(1,)"),
           npy_header("'<f8[ns]'", "(1,)"),
           npy_header("['<f8']", "(1,)"),
           npy_header("[('a',)]", "(1,)"),
           npy_header("[('a', '<f8', (1,), 2)]", "(1,)"),
           npy_header("[(1, '<f8')]", "(1,)"),
           npy_header("[('a', '<f8', -1)]", "(1,)"),
           npy_header("[('a', '<f8', 'x')]", "(1,)"),
           npy_header("[('a', '<f8', (0,))]", "(1,)"),
           npy_header("[('a', 8)]", "(1,)"),
           npy_header("[['a', '<f8']]", "(1,)"),
           npy_header("('<f8',)", "(1,)"),
           npy_header("[('a', '|V4294967295'), ('b', '|u1')]", "(1,)"),
           npy_header("[('a', '<f8', (4294967296, 4294967296))]", "(1,)"),
           npy_header("[(('a', 'b', 'c'), '<f8')]", "(1,)"),
           npy_header(std::string(40, '[') + std::string(40, ']'), "(1,)"),
       }) {
    EXPECT_THAT(why_not(header), HasSubstr("bad NPY header")) << header;
    EXPECT_THAT(why_not(header), HasSubstr("(at byte ")) << header;
  }
}

TEST_F(NpyTest, BytesOfTheFileAreMadePrintableInErrors) {
  EXPECT_THAT(why_not(npy_header("'\xff\x1b[31m'", "(1,)")), HasSubstr("\\xff\\x1b[31m"));
}

}  // namespace
}  // namespace evenkeel
