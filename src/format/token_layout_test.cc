#include "format/token_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "format/token_test_files.h"

namespace evenkeel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class TokenLayoutTest : public TokenFileTest {
 protected:
  std::string npy(std::string_view name, std::string_view descr, std::string_view shape,
                  std::string_view data) const {
    return write(name, npy_file(npy_header(descr, shape), 0) + std::string(data));
  }
};

TEST_F(TokenLayoutTest, RawIsUint16UnlessDtypeIsGiven) {
  const auto narrow = write("a.bin", counting<std::uint16_t>(0, 70'000));
  expect_counting<std::uint16_t>(open({narrow}), 70'000);
  EXPECT_EQ(open({narrow}).layout.format, "raw");
  EXPECT_EQ(open({narrow}).detail, "raw (uint16 assumed)");
  EXPECT_EQ(open({narrow}, {.dtype = kU16}).detail, "raw");
  const auto wide = write("b.bin", counting<std::uint32_t>(0, 9));
  expect_counting<std::uint32_t>(open({wide}, {.dtype = kU32}), 9);
  expect_counting<std::int32_t>(open({wide}, {.dtype = kI32}), 9);
}

TEST_F(TokenLayoutTest, HeaderlessNpyIsRaw) {
  const auto dolma = write("part-0.npy", counting<std::uint32_t>(0, 9));
  expect_counting<std::uint32_t>(open({dolma}, {.dtype = kU32}), 9);
  expect_counting<std::uint16_t>(open({write("b.npy", counting<std::uint16_t>(0, 9))}), 9);
}

TEST_F(TokenLayoutTest, OddSizesAreRefusedWithTheNumbers) {
  const auto odd = write("a.bin", std::string(1001, 'x'));
  const auto error = token_refusal({odd});
  EXPECT_EQ(error.kind(), ErrorKind::kFormat);
  EXPECT_EQ(error.offset(), 1000u);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("1,001 bytes"), HasSubstr("uint16"), HasSubstr("1 left over")));
  EXPECT_THAT(token_refusal({write("b.bin", std::string(1002, 'x'))}, {.dtype = kU32}).what(),
              AllOf(HasSubstr("250 of 4"), HasSubstr("2 left over")));
}

TEST_F(TokenLayoutTest, TrueNpyIsReadBehindItsHeader) {
  const auto a = npy("a.npy", "'<u2'", "(9,)", counting<std::uint16_t>(0, 9));
  expect_counting<std::uint16_t>(open({a}), 9);
  EXPECT_EQ(open({a}).detail, "npy");
  const auto big = npy("b.npy", "'>u2'", "(4,)", "abcdefgh");
  EXPECT_TRUE(open({big}).layout.swapped);
  EXPECT_EQ(npy("c.bin", "'<i8'", "(1,)", "abcdefgh"), path("c.bin"));
  EXPECT_EQ(open({path("c.bin")}).layout.dtype, (DType{DTypeKind::kInt, 8}));
}

TEST_F(TokenLayoutTest, NpyMustBeIntegersAlongOneAxis) {
  const std::string data(24, 'x');
  EXPECT_THAT(token_refusal({npy("a", "'<u2'", "(3, 4)", data)}).what(),
              AllOf(HasSubstr("(3, 4)"), HasSubstr("one axis"), HasSubstr("reshape(-1)")));
  EXPECT_THAT(token_refusal({npy("a", "'<u2'", "()", "xx")}).what(), HasSubstr("shape ()"));
  for (const char* descr : {"'<f4'", "'|b1'", "'|V2'", "'<c8'", "'|S2'", "'<M8[ns]'"}) {
    EXPECT_THAT(token_refusal({npy("a", descr, "(3,)", data)}).what(), HasSubstr("integers"))
        << descr;
  }
  EXPECT_THAT(token_refusal({npy("a", "'<u2'", "(13,)", data)}).what(), HasSubstr("truncated"));
  EXPECT_THAT(token_refusal({npy("a", "'<u2'", "(11,)", data)}).what(), HasSubstr("too long"));
  EXPECT_EQ(token_refusal({npy("a", "'|O'", "(3,)", data)}).kind(), ErrorKind::kFormat);
  EXPECT_EQ(token_refusal({npy("a", "'<i2'", "(12,)", data)}, {.dtype = kU16}).kind(),
            ErrorKind::kInvalid);
}

TEST_F(TokenLayoutTest, FormatsMayDifferWhenDtypeAndByteOrderAgree) {
  write("0.idx", MegatronIndex::of({2, 1}).bytes());
  write("1.ds.index", le<std::uint64_t>(2));
  const TokenLayout tokens =
      open({write("0.bin", counting<std::uint16_t>(0, 3)),
            write("1.ds", counting<std::uint16_t>(3, 2)), write("2.bin", llmc_shard(5, 4)),
            write("3.bin", llmc_shard(9, 1)), write("4.bin", counting<std::uint16_t>(10, 2)),
            npy("5.npy", "'<u2'", "(3,)", counting<std::uint16_t>(12, 3))});
  expect_counting<std::uint16_t>(tokens, 15);
  EXPECT_EQ(tokens.layout.format, "mixed");
  EXPECT_EQ(tokens.detail,
            "megatron (1 shard) + datatrove (1 shard) + llm.c (GPT-2, 2 shards) + "
            "raw (uint16 assumed, 1 shard) + npy (1 shard)");
  EXPECT_FALSE(tokens.documents);
}

TEST_F(TokenLayoutTest, FilesThatDifferAreRefusedByBothNames) {
  const auto narrow = write("a.bin", llmc_shard(0, 5)),
             wide = write("b.bin", llmc_shard<std::uint32_t>(0, 5)),
             little = npy("c.npy", "'<u2'", "(4,)", "abcdefgh"),
             big = npy("d.npy", "'>u2'", "(4,)", "abcdefgh"),
             raw = write("e.bin", counting<std::uint32_t>(0, 4));
  EXPECT_THAT(token_refusal({narrow, wide}).what(),
              AllOf(HasSubstr(narrow), HasSubstr(wide), HasSubstr("uint16 (llm.c, GPT-2)"),
                    HasSubstr("uint32 (llm.c, Llama-3)")));
  EXPECT_THAT(token_refusal({little, narrow, big}).what(),
              AllOf(HasSubstr("big-endian"), HasSubstr("little-endian")));
  EXPECT_THAT(token_refusal({wide, raw}).what(), HasSubstr("uint16 (raw, uint16 assumed)"));
  EXPECT_EQ(token_refusal({wide, raw}).kind(), ErrorKind::kFormat);
  EXPECT_EQ(open({wide, raw}, {.dtype = kU32}).layout.rows, 9u);
}

TEST_F(TokenLayoutTest, TokensAreIntegers) {
  const auto raw = write("a.bin", counting<std::uint32_t>(0, 4));
  for (const char* name : {"float32", "bool", "bfloat16", "V4", "complex64"}) {
    const auto error = token_refusal({raw}, {.dtype = DType::parse(name)});
    EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
    EXPECT_THAT(error.what(), HasSubstr("integers")) << name;
  }
}

TEST_F(TokenLayoutTest, NoTokensAtAllAreRefused) {
  const auto a = write("a.bin", llmc_shard(0, 0)), b = write("b.bin", llmc_shard(0, 0));
  EXPECT_THAT(token_refusal({a, b}).what(), HasSubstr("no tokens in 2 files"));
  EXPECT_THAT(token_refusal({npy("c.npy", "'<u2'", "(0,)", "")}).what(), HasSubstr("no tokens"));
  EXPECT_THAT(token_refusal({write("d.bin", "")}).what(), HasSubstr("empty"));
  EXPECT_EQ(token_refusal({}).kind(), ErrorKind::kInvalid);
}

TEST_F(TokenLayoutTest, WhatIsEasilyMistakenNeedsADtype) {
  const auto gzip = write("tokens.csv.gz", "\x1f\x8b\x08 ....");
  EXPECT_THAT(token_refusal({gzip}).what(), AllOf(HasSubstr("gzip"), HasSubstr("1f 8b 08")));
  EXPECT_EQ(open({gzip}, {.dtype = kU16}).layout.rows, 4u);
  const auto pointer = write("a.bin", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(token_refusal({pointer}).what(), HasSubstr("git lfs pull"));
}

TEST_F(TokenLayoutTest, SameFileTwiceIsTwiceItsTokens) {
  const auto a = write("a.bin", counting<std::uint16_t>(0, 4));
  EXPECT_EQ(open({a, a}).layout.rows, 8u);
}

TEST_F(TokenLayoutTest, WhatCannotBeOpenedSaysWhy) {
  for (const char* name : {"missing.bin", "missing.idx", "missing.ds", "missing.ds.index"}) {
    const auto error = token_refusal({path(name)});
    EXPECT_EQ(error.code(), ENOENT);
    EXPECT_EQ(error.path(), path(name));
  }
  EXPECT_EQ(token_refusal({path("")}).code(), EISDIR);
  EXPECT_EQ(token_refusal({std::string("a\0b", 3)}).kind(), ErrorKind::kInvalid);
  EXPECT_EQ(token_refusal({std::string("a\0.idx", 6)}).kind(), ErrorKind::kInvalid);
  ASSERT_EQ(::symlink("nowhere", path("a.idx").c_str()), 0);
  EXPECT_EQ(token_refusal({write("a.bin", "xx")}).path(), path("a.idx"));
}

TEST_F(TokenLayoutTest, TenThousandShardsOpenQuickly) {
  const std::vector<std::string> paths(10'000, write("a.bin", llmc_shard(0, 8)));
  const std::clock_t start = std::clock();  // CPU time, because the machine may be busy
  EXPECT_EQ(open(paths).layout.rows, 80'000u);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5.0);
}

TEST_F(TokenLayoutTest, FileOfATerabyteOpensAtOnce) {
  const auto huge = write("a.bin", "");
  ASSERT_EQ(::truncate(huge.c_str(), 1'000'000'000'000), 0);
  EXPECT_EQ(open({huge}).layout.rows, 500'000'000'000u);
}

}  // namespace
}  // namespace evenkeel
