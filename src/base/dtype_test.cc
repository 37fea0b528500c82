#include "evenkeel/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "evenkeel/error.h"

namespace evenkeel {
namespace {

using ::testing::HasSubstr;

std::string dtype_refusal(std::string_view name) {
  try {
    DType::parse(name);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    return error.what();
  }
  return "accepted";
}

TEST(DTypeTest, LongAndShortNamesMeanTheSame) {
  const DType f4{DTypeKind::kFloat, 4};
  for (const char* name : {"float32", "f4", "<f4", "=f4", "|f4"}) {
    EXPECT_EQ(DType::parse(name), f4) << name;
  }
  EXPECT_EQ(DType::parse("|u1"), (DType{DTypeKind::kUint, 1}));
  EXPECT_EQ(DType::parse("bool"), DType::parse("|b1"));
  EXPECT_EQ(DType::parse("f2"), (DType{DTypeKind::kFloat, 2}));
  EXPECT_EQ(DType::parse("complex128"), DType::parse("<c16"));
  EXPECT_EQ(DType::parse("bfloat16"), (DType{DTypeKind::kBfloat, 2}));
}

TEST(DTypeTest, EveryNameParsesBackToItself) {
  for (const char* name :
       {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
        "float32", "float64", "bfloat16", "complex64", "complex128", "record[12]"}) {
    EXPECT_EQ(DType::parse(name).name(), name);
  }
}

TEST(DTypeTest, RecordsCarryTheirSize) {
  EXPECT_EQ(DType::parse("V12"), (DType{DTypeKind::kRecord, 12}));
  EXPECT_EQ(DType::parse("|V2"), (DType{DTypeKind::kRecord, 2}));
  EXPECT_EQ(DType::parse("V4294967295").size, 4294967295u);
}

TEST(DTypeTest, BigEndianIsRefusedWithTheOptionToSet) {
  EXPECT_THAT(dtype_refusal(">f4"), HasSubstr("big_endian"));
  EXPECT_THAT(dtype_refusal(">bfloat16"), HasSubstr("big_endian"));
}

TEST(DTypeTest, UnknownNamesAreRefusedWithTheKnownOnes) {
  for (const char* name : {"",         " ",         "<",        "float",    "int",         "f3",
                           "f16",      "c32",       "float128", "F4",       "O",           "U5",
                           "V",        "V0",        "V-1",      "V 1",      "V4294967296", "V1x",
                           "record[]", "record[0]", "record[1", "<float32", "<<f4",        "f4 "}) {
    EXPECT_THAT(dtype_refusal(name), HasSubstr("bfloat16")) << name;
  }
}

TEST(DTypeTest, NativeTypesHaveNames) {
  EXPECT_EQ(DType::of<bool>().name(), "bool");
  EXPECT_EQ(DType::of<const std::uint16_t>().name(), "uint16");
  EXPECT_EQ(DType::of<double>().name(), "float64");
  EXPECT_EQ(DType::of<std::complex<float>>().name(), "complex64");
  struct Point {
    float x, y, z;
  };
  EXPECT_EQ(DType::of<Point>().name(), "record[12]");
}

TEST(DTypeTest, ByteOrderReversesNumbersNotRecords) {
  EXPECT_EQ(DType::parse("f8").swap_unit(), 8u);
  EXPECT_EQ(DType::parse("c8").swap_unit(), 4u);
  EXPECT_EQ(DType::parse("V6").swap_unit(), 1u);
}

RC_GTEST_PROP(DTypeTest, AnyTextParsesOrIsRefused, (const std::string& text)) {
  try {
    const DType dtype = DType::parse(text);
    RC_ASSERT(dtype.size >= 1u);
    RC_ASSERT(DType::parse(dtype.name()) == dtype);
  } catch (const Error& error) {
    RC_ASSERT(error.kind() == ErrorKind::kInvalid);
  }
}

}  // namespace
}  // namespace evenkeel
