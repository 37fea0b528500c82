#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>

#include "evenkeel/error.h"
#include "evenkeel/meter.h"
#include "format/tensor_table.h"
#include "format/test_files.h"

namespace evenkeel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

template <class T>
std::string le(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}
std::string text(std::string_view value) { return le<std::uint64_t>(value.size()).append(value); }
std::string u32_key(std::string_view key, std::uint32_t value) {
  return text(key) + le<std::uint32_t>(4) + le(value);
}
std::string tensor(std::string_view name, const std::vector<std::uint64_t>& axes,
                   std::uint32_t type, std::uint64_t offset) {
  std::string bytes = text(name) + le<std::uint32_t>(static_cast<std::uint32_t>(axes.size()));
  for (const std::uint64_t length : axes) bytes += le(length);
  return bytes + le(type) + le(offset);
}

class GgufTest : public FileTest {
 protected:
  static std::string file(const std::vector<std::string>& keys,
                          const std::vector<std::string>& tensors, std::size_t data,
                          std::size_t alignment = 32, std::uint32_t version = 3) {
    std::string bytes =
        "GGUF" + le(version) + le<std::uint64_t>(tensors.size()) + le<std::uint64_t>(keys.size());
    for (const std::string& key : keys) bytes += key;
    for (const std::string& row : tensors) bytes += row;
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
    return bytes.append(data, 'x');
  }
  TensorTable read(std::string_view bytes) const {
    return read_gguf(open_source(write("m.gguf", bytes)), Budget(8_MiB));
  }
  std::string refusal_of_file(std::string_view bytes) const {
    try {
      read(bytes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat);
      return error.what();
    }
    return "it was accepted";
  }
};

TEST_F(GgufTest, TensorsAndKeys) {
  const std::string words = text("words") + le<std::uint32_t>(9) + le<std::uint32_t>(8) +
                            le<std::uint64_t>(2) + text("one") + text("two");
  const std::string bytes =
      file({text("general.name") + le<std::uint32_t>(8) + text("tiny"), words, u32_key("n", 7),
            text("ok") + le<std::uint32_t>(7) + le<std::uint8_t>(1)},
           {tensor("q", {256, 3}, 12, 64), tensor("f", {4, 2}, 0, 0)}, 64 + 3 * 144);
  const TensorTable table = read(bytes);
  EXPECT_THAT(table.metadata,
              ElementsAre(Pair("general.name", "tiny"), Pair("n", "7"), Pair("ok", "true")));
  ASSERT_EQ(table.tensors.size(), 2u);
  EXPECT_EQ(table.tensors[0].name, "f");
  EXPECT_THAT(table.tensors[0].shape, ElementsAre(2, 4));  // row-major
  EXPECT_EQ(table.tensors[0].bytes, 32u);
  EXPECT_EQ(table.tensors[0].dtype, DType::of<float>());
  EXPECT_EQ(table.tensors[1].type, "Q4_K");
  EXPECT_FALSE(table.tensors[1].dtype);
  EXPECT_EQ(table.tensors[1].bytes, 3u * 144);
  EXPECT_EQ(table.tensors[1].offset + table.tensors[1].bytes, bytes.size());
}

TEST_F(GgufTest, NumbersWithFractionsKeepTheirValues) {
  const auto f32 = [](std::string_view key, float value) {
    return text(key) + le<std::uint32_t>(6) + le(value);
  };
  const auto f64 = [](std::string_view key, double value) {
    return text(key) + le<std::uint32_t>(12) + le(value);
  };
  const TensorTable table = read(
      file({f32("base", 10000), f32("epsilon", 1e-12F), f32("scale", 0.1F), f64("third", 1.0 / 3)},
           {}, 0));
  EXPECT_THAT(table.metadata,
              ElementsAre(Pair("base", "10000"), Pair("epsilon", "1e-12"), Pair("scale", "0.1"),
                          Pair("third", "0.3333333333333333")));
}

TEST_F(GgufTest, AlignmentIsWhatTheFileSays) {
  const TensorTable table =
      read(file({u32_key("general.alignment", 256)}, {tensor("f", {1}, 24, 0)}, 1, 256));
  EXPECT_EQ(table.tensors[0].offset % 256, 0u);
  EXPECT_THAT(refusal_of_file(file({u32_key("general.alignment", 3)}, {}, 0)),
              HasSubstr("power of two"));
  EXPECT_THAT(refusal_of_file(file({}, {tensor("f", {1}, 24, 1)}, 8)),
              HasSubstr("not a multiple of the alignment"));
}

TEST_F(GgufTest, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal_of_file(file({}, {}, 0, 32, 1)), HasSubstr("version 1"));
  EXPECT_THAT(refusal_of_file(file({}, {}, 0, 32, 3 << 24)), HasSubstr("big-endian"));
  EXPECT_THAT(refusal_of_file("GGUF" + le<std::uint32_t>(3) + le(UINT64_MAX) + le(UINT64_MAX)),
              HasSubstr("more than a file of 24 bytes can have"));
  EXPECT_THAT(refusal_of_file(file({}, {tensor("f", {5}, 0, 0)}, 16)),
              HasSubstr("ends beyond the end of the file"));
  EXPECT_THAT(refusal_of_file(file({}, {tensor("f", {8}, 0, 0), tensor("g", {8}, 0, 0)}, 64)),
              HasSubstr("lies inside another"));
  EXPECT_THAT(refusal_of_file(file({}, {tensor("f", {8}, 4, 0)}, 64)),
              HasSubstr("has type 4, which is not known here"));
  EXPECT_THAT(refusal_of_file(file({}, {tensor("f", {33}, 8, 0)}, 64)),
              HasSubstr("rows of 33 numbers, but Q8_0 stores them in blocks of 32"));
  EXPECT_THAT(refusal_of_file(file({}, {tensor("f", {1, 1, 1, 1, 1}, 0, 0)}, 64)),
              HasSubstr("has 5 axes"));
  EXPECT_THAT(refusal_of_file(file({}, {tensor("f", {1ull << 40, 1ull << 40}, 0, 0)}, 64)),
              HasSubstr("larger than any file"));
  EXPECT_THAT(refusal_of_file(file({text("k") + le<std::uint32_t>(99)}, {}, 64)),
              HasSubstr("there is no type 99"));
  EXPECT_THAT(refusal_of_file(file({le(std::uint64_t{1} << 40)}, {}, 64)), HasSubstr("too long"));
}

TEST_F(GgufTest, ListsWithinListsEnd) {
  std::string nested = text("deep") + le<std::uint32_t>(9);
  for (int i = 0; i < 100; ++i) nested += le<std::uint32_t>(9) + le<std::uint64_t>(1);
  EXPECT_THAT(refusal_of_file(file({nested}, {}, 64)), HasSubstr("lists within lists"));
  EXPECT_THAT(refusal_of_file(file({text("long") + le<std::uint32_t>(9) + le<std::uint32_t>(8) +
                                    le<std::uint64_t>(UINT64_MAX)},
                                   {}, 64)),
              HasSubstr("but only"));
}

TEST_F(GgufTest, NamesMustBeTextAndDiffer) {
  EXPECT_THAT(refusal_of_file(file({}, {tensor("f\xff", {1}, 24, 0)}, 32)),
              HasSubstr("a name, \"f\\xff\", is not UTF-8"));
  EXPECT_THAT(refusal_of_file(file({u32_key("\xc3", 1)}, {}, 32)), HasSubstr("a key, "));
  EXPECT_EQ(refusal_of_file(file({u32_key("\xef\xbf\xbd", 1)}, {}, 32)), "it was accepted");
  EXPECT_THAT(refusal_of_file(file({}, {tensor("f", {1}, 24, 0), tensor("f", {1}, 24, 32)}, 64)),
              HasSubstr("two tensors are called \"f\""));
}

TEST_F(GgufTest, ATensorWithoutBytesHidesNoOverlap) {
  EXPECT_THAT(
      refusal_of_file(file(
          {}, {tensor("f", {16}, 0, 0), tensor("none", {0}, 0, 32), tensor("g", {8}, 0, 32)}, 64)),
      HasSubstr("\"g\" lies inside another"));
}

// A hole of zeros parses as empty strings and tensors without names. Reading it must stop.
TEST_F(GgufTest, AHoleEnds) {
  constexpr std::uint64_t kHole = std::uint64_t{1} << 40;
  const auto kind_of = [&](const std::string& head) {
    const std::string path = write("hole.gguf", head);
    std::filesystem::resize_file(path, kHole);
    try {
      read_gguf(open_source(path), Budget(8_MiB));
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kInvalid;
  };
  const auto counts = [](std::uint64_t tensors, std::uint64_t keys) {
    return "GGUF" + le<std::uint32_t>(3) + le(tensors) + le(keys);
  };
  EXPECT_EQ(kind_of(counts(0, 1) + text("k") + le<std::uint32_t>(9) + le<std::uint32_t>(8) +
                    le<std::uint64_t>(kHole / 16)),
            ErrorKind::kFormat);
  EXPECT_EQ(kind_of(counts(kHole / 32, 0)), ErrorKind::kBudget);
}

// A vocabulary takes megabytes, which the budget would not cover after opening.
TEST_F(GgufTest, TheHeaderDoesNotStayInThePageCache) {
  constexpr std::uint64_t kWords = 300'000;
  std::string words = text("words") + le<std::uint32_t>(9) + le<std::uint32_t>(8) + le(kWords);
  for (std::uint64_t i = 0; i < kWords; ++i) words += text("token");
  const std::string path = write("m.gguf", file({words}, {tensor("f", {8}, 0, 0)}, 32));
  if (drop_file_cache(path).value_or(1) != 0) GTEST_SKIP() << "the cache cannot be dropped";
  EXPECT_EQ(read_gguf(open_source(path), Budget(8_MiB)).tensors.size(), 1u);
  EXPECT_EQ(file_cache(path)->cached, 0u);
}

// A file that is truncated anywhere is refused, and never read beyond its end.
TEST_F(GgufTest, CutAnywhere) {
  const std::string whole = file({u32_key("n", 7)}, {tensor("f", {8}, 0, 0)}, 32);
  EXPECT_EQ(refusal_of_file(whole), "it was accepted");
  for (std::size_t length = 4; length < whole.size(); ++length) {
    EXPECT_NE(refusal_of_file(whole.substr(0, length)), "it was accepted") << length;
  }
}

}  // namespace
}  // namespace evenkeel
