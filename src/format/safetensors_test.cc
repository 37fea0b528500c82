#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "evenkeel/error.h"
#include "format/tensor_table.h"
#include "format/test_files.h"

namespace evenkeel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string with_length(std::string_view header, std::uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 255);
  return bytes.append(header);
}

std::string safetensors(std::string_view header, std::size_t data) {
  return with_length(header, header.size()).append(data, 'x');
}

class SafetensorsTest : public FileTest {
 protected:
  TensorTable read(std::string_view bytes) const {
    return read_safetensors(open_source(write("m.safetensors", bytes)), Budget(8_MiB));
  }
  std::string refusal_of_header(std::string_view header, std::size_t data) const {
    return refusal_of_file(safetensors(header, data));
  }
  std::string refusal_of_file(std::string_view bytes) const {
    try {
      read(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat);
      EXPECT_EQ(error.path(), path("m.safetensors"));
      return error.what();
    }
    return "it was accepted";
  }
};

TEST_F(SafetensorsTest, TensorsComeInTheOrderOfTheirBytes) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
      R"("a":{"data_offsets":[0,4],"shape":[2],"dtype":"BF16"},)"
      R"("none":{"dtype":"I64","shape":[5,0],"data_offsets":[4,4]},)"
      R"("one":{"dtype":"BOOL","shape":[],"data_offsets":[28,29]}}   )";
  const TensorTable table = read(safetensors(header, 29));
  EXPECT_EQ(table.format, "safetensors");
  EXPECT_THAT(table.metadata, ElementsAre(Pair("format", "pt")));
  ASSERT_EQ(table.tensors.size(), 4u);
  const std::uint64_t data = 8 + header.size();
  const auto expect = [&](const Tensor& tensor, const char* name, DType dtype,
                          std::vector<std::uint64_t> shape, std::uint64_t offset,
                          std::uint64_t bytes) {
    EXPECT_EQ(tensor.name, name);
    EXPECT_EQ(tensor.dtype, dtype);
    EXPECT_EQ(tensor.shape, shape);
    EXPECT_EQ(tensor.offset, data + offset);
    EXPECT_EQ(tensor.bytes, bytes);
  };
  expect(table.tensors[0], "a", {DTypeKind::kBfloat, 2}, {2}, 0, 4);
  expect(table.tensors[1], "none", {DTypeKind::kInt, 8}, {5, 0}, 4, 0);
  expect(table.tensors[2], "b", {DTypeKind::kFloat, 4}, {2, 3}, 4, 24);
  expect(table.tensors[3], "one", {DTypeKind::kBool, 1}, {}, 28, 1);
}

TEST_F(SafetensorsTest, NoTensorsAtAll) {
  EXPECT_THAT(read(safetensors("{}", 0)).tensors, IsEmpty());
}

TEST_F(SafetensorsTest, TypesOfOtherSizesAndOfLaterVersions) {
  const TensorTable table =
      read(safetensors(R"({"four":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]},)"
                       R"("eight":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[3,5]},)"
                       R"("later":{"dtype":"X128","shape":[2],"data_offsets":[5,37]}})",
                       37));
  EXPECT_EQ(table.tensors[0].type, "F4");
  EXPECT_FALSE(table.tensors[0].dtype);
  EXPECT_EQ(table.tensors[1].bytes, 2u);
  EXPECT_EQ(table.tensors[2].bytes, 32u);  // the type is unknown, but its bytes can be read
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2),
              HasSubstr("has 2 bytes, but shape (3,) of F4 takes 2"));
}

TEST_F(SafetensorsTest, KeysThatItDoesNotKnowArePassedOver) {
  const TensorTable table =
      read(safetensors(R"({"a":{"note":{"dtype":[1,{"x":null}]},"dtype":"U8","more":[[-1.5,true]],)"
                       R"("shape":[1],"last":"text","data_offsets":[0,1]}})",
                       1));
  EXPECT_EQ(table.tensors[0].bytes, 1u);
}

TEST_F(SafetensorsTest, LengthOfTheHeader) {
  EXPECT_THAT(refusal_of_file("abc"), HasSubstr("the file has 3 bytes"));
  EXPECT_THAT(refusal_of_file(with_length("{}", 3)),
              HasSubstr("it says 3 bytes, but only 2 follow"));
  EXPECT_THAT(refusal_of_file(with_length("{}", 100'000'001)),
              HasSubstr("100,000,001 bytes is more than the format allows"));
  EXPECT_THAT(refusal_of_file(with_length("{}", UINT64_MAX)), HasSubstr("more than the format"));
  EXPECT_THAT(refusal_of_header(" {}", 0), HasSubstr("does not begin with {"));
}

TEST_F(SafetensorsTest, RefusesWhatIsNotJson) {
  EXPECT_THAT(refusal_of_header("{", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_header("{} x", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_header(std::string("{}\0x", 4), 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal_of_header("{\"a\xff\":1}", 0), HasSubstr("not valid JSON"));
}

TEST_F(SafetensorsTest, RefusesValuesOfAnotherKind) {
  EXPECT_THAT(refusal_of_header(R"({"a":1})", 0), HasSubstr("the value of \"a\" is a number"));
  EXPECT_THAT(refusal_of_header(R"({"a":[]})", 0), HasSubstr("the value of \"a\" is a list"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":1}})", 0),
              HasSubstr("the value of \"dtype\" of \"a\" is a number"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"shape":[-1]}})", 0),
              HasSubstr("the value of \"shape\" of \"a\" is a negative number"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"shape":[1.5]}})", 0), HasSubstr("a fraction"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"shape":[18446744073709551616]}})", 0),
              HasSubstr("larger than 64 bits"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"shape":{}}})", 0), HasSubstr("is an object"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", 1),
              HasSubstr("the value of \"shape\" of \"a\" is a list within a list"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,[1]]}})", 1),
              HasSubstr("a list within a list"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"data_offsets":["0"]}})", 0), HasSubstr("is a string"));
  EXPECT_THAT(refusal_of_header(R"({"__metadata__":{"a":1}})", 0),
              HasSubstr("the value of \"a\" of \"__metadata__\" is a number"));
}

TEST_F(SafetensorsTest, RefusesWhatIsThereTwiceOrNotAtAll) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(refusal_of_header("{" + a + "," + a + "}", 1),
              HasSubstr("two entries are called \"a\""));
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":"U8","dtype":"U8"}})", 0),
              HasSubstr("two values of \"dtype\""));
  EXPECT_THAT(refusal_of_header(R"({"__metadata__":{"a":"1","a":"1"}})", 0),
              HasSubstr("two values of \"a\""));
  EXPECT_THAT(refusal_of_header(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("has no dtype"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1),
              HasSubstr("has no shape"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":"U8","shape":[1]}})", 1),
              HasSubstr("has no data_offsets"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1),
              HasSubstr("has 1 data_offsets, not 2"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1),
              HasSubstr("more than 2 data_offsets"));
  // The limit applies before the entries after it are stored.
  EXPECT_THAT(refusal_of_header(R"({"a":{},"b":1})", 0), HasSubstr("\"a\" has no dtype"));
  std::string axes = "1";
  for (int i = 1; i < 64; ++i) axes += ",1";
  const auto with_axes = [](const std::string& shape) {
    return R"({"a":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,1]}})";
  };
  EXPECT_EQ(refusal_of_header(with_axes(axes), 1), "it was accepted");
  EXPECT_THAT(refusal_of_header(with_axes(axes + ",1"), 1), HasSubstr("more than 64 axes"));
}

TEST_F(SafetensorsTest, RefusesHolesAndOverlapsAndWrongSizes) {
  const auto two = [](int begin, int end) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[)" +
           std::to_string(end - begin) + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
           std::to_string(end) + "]}}";
  };
  EXPECT_EQ(refusal_of_header(two(4, 8), 8), "it was accepted");
  EXPECT_THAT(refusal_of_header(two(5, 8), 8),
              HasSubstr("\"b\" begins at byte 5 of the data, after a hole: 4 was expected"));
  EXPECT_THAT(refusal_of_header(two(3, 8), 8), HasSubstr("inside another: 4 was expected"));
  EXPECT_THAT(refusal_of_header(two(4, 8), 9), HasSubstr("but the file has"));
  EXPECT_THAT(
      refusal_of_header(two(4, 9), 8),
      AllOf(HasSubstr("lies at bytes 4 to 9 of the data, which has 8"), HasSubstr("incomplete")));
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              HasSubstr("has 4 bytes, but shape (2,) of F32 takes 8"));
  EXPECT_THAT(refusal_of_header(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[1,0]}})", 1),
              HasSubstr("lies at bytes 1 to 0"));
  EXPECT_THAT(
      refusal_of_header(
          R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
      HasSubstr("larger than any file"));
}

TEST_F(SafetensorsTest, ALargeHeaderMustFitTheBudget) {
  const std::string header = "{" + std::string(600 << 10, ' ') + "}";  // 16 times as much in memory
  try {
    read(safetensors(header, 0));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBudget);
    EXPECT_THAT(error.what(), HasSubstr("header of weights"));
  }
}

TEST_F(SafetensorsTest, AnIndexNamesFilesBesideIt) {
  const std::string index = write(
      "model.safetensors.index.json",
      R"({"metadata":{"total_size":9},"weight_map":{"b":"2.safetensors","a":"1.safetensors","c":"2.safetensors"}})");
  const SafetensorsIndex read = read_safetensors_index(index, Budget(8_MiB));
  EXPECT_THAT(read.files, ElementsAre(path("1.safetensors"), path("2.safetensors")));
  EXPECT_THAT(read.tensors, ElementsAre(Pair("a", 0u), Pair("b", 1u), Pair("c", 1u)));
}

TEST_F(SafetensorsTest, AnIndexThatLeavesItsFolderIsRefused) {
  for (const char* name : {"../a", "/etc/passwd", "..", ".", "", "a/b", "a\\u0000b"}) {
    const std::string index =
        write("i.json", R"({"weight_map":{"a":")" + std::string(name) + R"("}})");
    try {
      read_safetensors_index(index, Budget(8_MiB));
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("is not the name of a file beside it"));
    }
  }
  for (const char* bad :
       {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{"a":1}})", "{"}) {
    EXPECT_THROW(read_safetensors_index(write("i.json", bad), Budget(8_MiB)), Error) << bad;
  }
}

}  // namespace
}  // namespace evenkeel
