#include "format/llmc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/token_test_files.h"

namespace evenkeel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LlmcTest : public TokenFileTest {
 protected:
  Error why_not(std::string_view bytes, const TokenFormatOptions& options = {}) const {
    return token_refusal({write("shard.bin", bytes)}, options);
  }
};

TEST_F(LlmcTest, Gpt2ShardIsUint16BehindItsHeader) {
  const TokenLayout tokens = open({write("a.bin", llmc_shard(0, 70'000))});
  expect_counting<std::uint16_t>(tokens, 70'000);
  EXPECT_EQ(tokens.layout.format, "llm.c");
  EXPECT_EQ(tokens.detail, "llm.c (GPT-2)");
  EXPECT_EQ(tokens.layout.segments.at(0).data_offset, 1024u);
  EXPECT_FALSE(tokens.documents);
}

TEST_F(LlmcTest, Llama3ShardIsUint32) {
  const TokenLayout tokens = open({write("a.bin", llmc_shard<std::uint32_t>(0, 1000))});
  expect_counting<std::uint32_t>(tokens, 1000);
  EXPECT_EQ(tokens.detail, "llm.c (Llama-3)");
}

TEST_F(LlmcTest, ShardsAreOneStream) {
  const TokenLayout tokens =
      open({write("0.bin", llmc_shard(0, 100)), write("1.bin", llmc_shard(100, 0)),
            write("2.bin", llmc_shard(100, 33))});
  expect_counting<std::uint16_t>(tokens, 133);
  EXPECT_EQ(tokens.detail, "llm.c (GPT-2, 3 shards)");
  EXPECT_EQ(tokens.layout.segments.size(), 2u);
  EXPECT_EQ(tokens.layout.paths.size(), 3u);
}

TEST_F(LlmcTest, WhatElseTheHeaderHoldsDoesNotMatter) {
  std::string bytes = llmc_shard(0, 5);
  for (std::size_t i = 12; i < 1024; ++i) bytes[i] = 'x';
  expect_counting<std::uint16_t>(open({write("a.bin", bytes)}), 5);
}

TEST_F(LlmcTest, CountsThatLieAreRefusedWithTheSum) {
  const std::string five = counting<std::uint16_t>(0, 5);
  const auto few = why_not(llmc_file(20240520, 1, 100, five));
  EXPECT_EQ(few.kind(), ErrorKind::kFormat);
  EXPECT_EQ(few.offset(), 1034u);
  EXPECT_THAT(few.what(), AllOf(HasSubstr("truncated"), HasSubstr("100 tokens"),
                                HasSubstr("1,224 bytes"), HasSubstr("1,034")));
  EXPECT_THAT(why_not(llmc_file(20240520, 1, 4, five)).what(), HasSubstr("too long"));
  EXPECT_THAT(why_not(llmc_file(20240520, 1, 5, five + "x")).what(), HasSubstr("too long"));
  EXPECT_THAT(why_not(llmc_file(20240801, 7, 5, five)).what(), HasSubstr("1,044 bytes"));
  EXPECT_THAT(why_not(llmc_file(20240520, 1, 0x7fffffff, five)).what(), HasSubstr("4,294,968,318"));
  EXPECT_THAT(why_not(llmc_file(20240801, 7, 0x7fffffff, five)).what(), HasSubstr("8,589,935,612"));
}

TEST_F(LlmcTest, NegativeCountIsRefused) {
  const auto error = why_not(llmc_file(20240520, 1, -5, "0123456789"));
  EXPECT_THAT(error.what(), HasSubstr("-5 tokens"));
  EXPECT_EQ(error.offset(), 8u);
  EXPECT_THAT(why_not(llmc_file(20240801, 7, -0x7fffffff - 1, "")).what(),
              HasSubstr("-2147483648 tokens"));
}

TEST_F(LlmcTest, HeaderCutOffIsRefused) {
  const std::string bytes = llmc_shard(0, 5);
  for (const std::size_t length : {4u, 5u, 8u, 12u, 1023u}) {
    EXPECT_THAT(why_not(bytes.substr(0, length)).what(), HasSubstr("1,024")) << length;
  }
}

TEST_F(LlmcTest, UnknownVersionsAreRefused) {
  for (const std::int32_t version : {0, 2, 7, -1}) {
    const auto error = why_not(llmc_file(20240520, version, 0, ""));
    EXPECT_EQ(error.offset(), 4u);
    EXPECT_THAT(error.what(), HasSubstr("version " + std::to_string(version)));
  }
  EXPECT_THAT(why_not(llmc_file(20240801, 1, 0, "")).hint_text(), HasSubstr("version 7"));
}

TEST_F(LlmcTest, OtherFilesOfLlmcAreNamed) {
  EXPECT_THAT(why_not(llmc_file(20240522, 1, 3, "")).what(),
              AllOf(HasSubstr("not a token shard"), HasSubstr("evaluation set")));
  EXPECT_THAT(why_not(llmc_file(20240527, 1, 3, "")).what(), HasSubstr("training state"));
  EXPECT_THAT(why_not(llmc_file(20240326, 3, 3, "")).what(), HasSubstr("model checkpoint"));
  EXPECT_THAT(why_not(llmc_file(20240522, 1, 3, ""), {.dtype = kU16}).what(),
              HasSubstr("not a token shard"));
}

TEST_F(LlmcTest, GivenDtypeMustBeTheHeaders) {
  const auto error = why_not(llmc_shard(0, 5), {.dtype = kU32});
  EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("uint16"), HasSubstr("uint32")));
  expect_counting<std::uint16_t>(open({path("shard.bin")}, {.dtype = kU16}), 5);
}

}  // namespace
}  // namespace evenkeel
