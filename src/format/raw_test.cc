#include "format/raw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/test_files.h"

namespace evenkeel {
namespace {

using ::testing::HasSubstr;
using Shape = std::vector<std::uint64_t>;

constexpr DType kF4{DTypeKind::kFloat, 4};

class RawTest : public FileTest {
 protected:
  Layout open(std::size_t bytes, const FormatOptions& options) const {
    return read_layout({write("data.bin", std::string(bytes, 'x'))}, options);
  }
  std::string why_not(std::size_t bytes, const FormatOptions& options) const {
    const auto error = refusal(std::string(bytes, 'x'), options);
    return error.what();
  }
};

TEST_F(RawTest, WithoutShapeIsOneAxisAsLongAsTheFile) {
  const Layout layout = open(40, {.dtype = kF4});
  EXPECT_EQ(layout.format, "raw");
  EXPECT_EQ(layout.shape, Shape{10});
  EXPECT_EQ(layout.row_bytes, 4u);
  EXPECT_FALSE(layout.swapped);
  EXPECT_FALSE(layout.fortran);
}

TEST_F(RawTest, FirstAxisIsWorkedOut) {
  const Layout layout = open(48, {.dtype = kF4, .shape = {-1, 2, 2}, .offset = 16});
  EXPECT_EQ(layout.shape, (Shape{2, 2, 2}));
  EXPECT_EQ(layout.row_bytes, 16u);
  EXPECT_EQ(layout.segments.at(0).data_offset, 16u);
}

TEST_F(RawTest, OddBytesAreCountedInTheError) {
  const std::string text = why_not(43, {.dtype = kF4});
  EXPECT_THAT(text, HasSubstr("43 bytes"));
  EXPECT_THAT(text, HasSubstr("3 bytes left over"));
  EXPECT_THAT(text, HasSubstr("float32"));
  EXPECT_THAT(why_not(44, {.dtype = kF4, .shape = {-1, 3}}), HasSubstr("8 bytes left over"));
  EXPECT_THAT(why_not(44, {.dtype = kF4, .offset = 1}), HasSubstr("3 bytes left over"));
}

TEST_F(RawTest, ShapeLargerThanTheFileIsRefusedWithTheSum) {
  const std::string text = why_not(1000, {.dtype = kF4, .shape = {300, 4}, .offset = 10});
  EXPECT_THAT(text, HasSubstr("(300, 4)"));
  EXPECT_THAT(text, HasSubstr("4,800"));
  EXPECT_THAT(text, HasSubstr("3,810 too few"));
}

TEST_F(RawTest, FileMayBeLongerThanTheShape) {
  const Layout layout = open(1001, {.dtype = kF4, .shape = {2, 5}});
  EXPECT_EQ(layout.shape, (Shape{2, 5}));
  EXPECT_EQ(layout.bytes(), 40u);
}

TEST_F(RawTest, NoRowsAreLegal) {
  const Layout layout = open(8, {.dtype = kF4, .shape = {0, 5}});
  EXPECT_EQ(layout.shape, (Shape{0, 5}));
  EXPECT_TRUE(layout.segments.empty());
  EXPECT_EQ(layout.paths.size(), 1u);
  EXPECT_EQ(open(8, {.dtype = kF4, .offset = 8}).shape, Shape{0});
}

TEST_F(RawTest, ShapesThatMakeNoSenseAreRefused) {
  const std::int64_t big = std::int64_t{1} << 40;
  EXPECT_THAT(why_not(8, {.dtype = kF4, .shape = {-2}}), HasSubstr("negative"));
  EXPECT_THAT(why_not(8, {.dtype = kF4, .shape = {1, -1}}), HasSubstr("negative"));
  EXPECT_THAT(why_not(8, {.dtype = kF4, .shape = {3, 0}}), HasSubstr("no bytes"));
  EXPECT_THAT(why_not(8, {.dtype = kF4, .shape = {-1, 0}}), HasSubstr("no bytes"));
  EXPECT_THAT(why_not(8, {.dtype = kF4, .shape = {big, big}}), HasSubstr("2^63-1"));
  EXPECT_THAT(why_not(8, {.dtype = kF4, .shape = {-1, big, big}}), HasSubstr("2^63-1"));
  EXPECT_THAT(why_not(8, {.dtype = kF4, .shape = {0, big, big}}), HasSubstr("2^63-1"));
  EXPECT_THAT(why_not(8, {.dtype = kF4, .offset = 9}), HasSubstr("beyond the end"));
  EXPECT_THAT(why_not(8, {.dtype = kF4, .offset = ~0ull}), HasSubstr("beyond the end"));
  EXPECT_THAT(why_not(0, {.dtype = kF4}), HasSubstr("empty"));
}

TEST_F(RawTest, BigEndianNumbersAreSwappedBytesAndRecordsAreNot) {
  EXPECT_TRUE(open(8, {.dtype = kF4, .big_endian = true}).swapped);
  EXPECT_FALSE(open(8, {.dtype = DType{DTypeKind::kUint, 1}, .big_endian = true}).swapped);
  EXPECT_FALSE(open(8, {.dtype = DType{DTypeKind::kRecord, 4}, .big_endian = true}).swapped);
}

TEST_F(RawTest, OffsetAppliesToEachOfSeveralFiles) {
  const auto a = write("a", std::string(20, 'x')), b = write("b", std::string(36, 'x'));
  const Layout layout = read_layout({a, b}, {.dtype = kF4, .shape = {-1, 2}, .offset = 4});
  EXPECT_EQ(layout.shape, (Shape{6, 2}));
  EXPECT_EQ(layout.segments.at(1).data_offset, 4u);
  EXPECT_EQ(layout.segments.at(1).first_row, 2u);
}

TEST_F(RawTest, SeveralFilesCannotHaveAFixedNumberOfRows) {
  const auto a = write("a", std::string(20, 'x')), b = write("b", std::string(36, 'x'));
  const auto error = refusal_of({a, b}, {.dtype = kF4, .shape = {5}});
  EXPECT_THAT(error.what(), HasSubstr("-1"));
}

}  // namespace
}  // namespace evenkeel
