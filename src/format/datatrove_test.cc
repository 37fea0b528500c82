#include "format/datatrove.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "format/token_test_files.h"

namespace evenkeel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ends = std::vector<std::uint64_t>;

class DatatroveTest : public TokenFileTest {
 protected:
  std::string pair(std::string_view name, std::string_view tokens, const Ends& ends) const {
    write(std::string(name) + ".index", le_all<std::uint64_t>(ends));
    return write(name, tokens);
  }
};

TEST_F(DatatroveTest, IndexDecidesBetweenUint16AndUint32) {
  const TokenLayout narrow = open({pair("a.ds", counting<std::uint16_t>(0, 10), {3, 3, 10})});
  expect_counting<std::uint16_t>(narrow, 10);
  EXPECT_EQ(narrow.layout.format, "datatrove");
  EXPECT_EQ(narrow.detail, "datatrove");
  EXPECT_EQ(narrow.documents, 3u);
  const TokenLayout wide = open({pair("b.ds", counting<std::uint32_t>(0, 10), {10})});
  expect_counting<std::uint32_t>(wide, 10);
  EXPECT_EQ(wide.documents, 1u);
}

TEST_F(DatatroveTest, GlobOfAFolderCountsEachFileOnce) {
  pair("0.ds", counting<std::uint16_t>(0, 10), {3, 10});
  pair("1.ds", counting<std::uint16_t>(10, 5), {5});
  for (const char* file : {"0.ds", "1.ds"}) {
    write(std::string(file) + ".metadata", "gpt2|2\n15\n15 T");
    write(std::string(file) + ".loss", "111111111111111");
  }
  for (const char* pattern : {"*.ds", "*.ds*", "*", "*.ds.index", "*.ds.m*"}) {
    const TokenLayout tokens = open(expand_token_paths(path(pattern)));
    expect_counting<std::uint16_t>(tokens, 15);
    EXPECT_EQ(tokens.detail, "datatrove (2 shards)");
    EXPECT_EQ(tokens.documents, 3u);
  }
}

TEST_F(DatatroveTest, WithoutIndexItIsRaw) {
  const auto ds = write("a.ds", counting<std::uint32_t>(0, 10));
  EXPECT_EQ(open({ds}).layout.rows, 20u);
  EXPECT_EQ(open({ds}).detail, "raw (uint16 assumed)");
  EXPECT_FALSE(open({ds}).documents);
  expect_counting<std::uint32_t>(open({ds}, {.dtype = kU32}), 10);
}

TEST_F(DatatroveTest, GivenDtypeMustAgree) {
  const auto ds = pair("a.ds", counting<std::uint16_t>(0, 10), {10});
  EXPECT_EQ(token_refusal({ds}, {.dtype = kU32}).kind(), ErrorKind::kInvalid);
  expect_counting<std::uint16_t>(open({ds}, {.dtype = kU16}), 10);
}

TEST_F(DatatroveTest, IndexThatDoesNotFitIsRefusedWithTheNumbers) {
  const std::string tokens = counting<std::uint16_t>(0, 10);
  for (const std::uint64_t end :
       {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{9}, std::uint64_t{11}, std::uint64_t{20},
        (std::uint64_t{1} << 63) + 10, (std::uint64_t{1} << 62) + 5,
        std::numeric_limits<std::uint64_t>::max()}) {
    const auto error = token_refusal({pair("a.ds", tokens, {end})});
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("20 bytes"), HasSubstr("a.ds.index")));
  }
  EXPECT_THAT(token_refusal({pair("a.ds", tokens, {})}).what(), HasSubstr("ends at token 0"));
}

TEST_F(DatatroveTest, EndsMustNotGoBack) {
  const auto error = token_refusal({pair("a.ds", counting<std::uint16_t>(0, 10), {4, 3, 10})});
  EXPECT_EQ(error.offset(), 8u);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("document 1"), HasSubstr("token 3"), HasSubstr("4")));
}

TEST_F(DatatroveTest, EndsLargerThanAWindowAreRead) {
  Ends ends;
  for (std::uint64_t i = 1; i <= 20'000; ++i) ends.push_back(2 * i);
  const auto ds = pair("a.ds", counting<std::uint16_t>(0, 40'000), ends);
  expect_counting<std::uint16_t>(open({ds}), 40'000);
  EXPECT_EQ(open({ds}).documents, 20'000u);
}

TEST_F(DatatroveTest, OddIndexIsRefused) {
  const auto ds = write("a.ds", counting<std::uint16_t>(0, 10));
  write("a.ds.index", le<std::uint64_t>(10) + "x");
  EXPECT_THAT(token_refusal({ds}).what(), AllOf(HasSubstr("9 bytes"), HasSubstr("1 left over")));
}

TEST_F(DatatroveTest, EmptyFileFitsBesideEitherDtype) {
  const auto none = pair("0.ds", "", {}), ds = pair("1.ds", counting<std::uint32_t>(0, 4), {4});
  expect_counting<std::uint32_t>(open({none, ds}), 4);
  expect_counting<std::uint32_t>(open({ds, none}), 4);
  EXPECT_THAT(token_refusal({none}).what(), HasSubstr("no tokens"));
}

}  // namespace
}  // namespace evenkeel
