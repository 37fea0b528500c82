#include "format/megatron.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <limits>

#include "format/token_test_files.h"

namespace evenkeel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Lengths = std::vector<std::int64_t>;

class MegatronTest : public TokenFileTest {
 protected:
  std::string pair(const MegatronIndex& index, std::string_view bin) const {
    write("a.bin", bin);
    return write("a.idx", index.bytes());
  }
  Error why_not(const MegatronIndex& index, std::uint64_t tokens = 12) const {
    return token_refusal({pair(index, counting<std::uint16_t>(0, tokens))});
  }
  MegatronIndex good_ = MegatronIndex::of({3, 4, 0, 5});
};

TEST_F(MegatronTest, PairIsReadByAnyOfItsNames) {
  pair(good_, counting<std::uint16_t>(0, 12));
  for (const char* name : {"a.idx", "a.bin", "a"}) {
    const TokenLayout tokens = open({path(name)});
    expect_counting<std::uint16_t>(tokens, 12);
    EXPECT_EQ(tokens.layout.format, "megatron");
    EXPECT_EQ(tokens.detail, "megatron");
    EXPECT_EQ(tokens.documents, 4u);
    EXPECT_EQ(tokens.layout.paths, std::vector<std::string>{path("a.bin")});
  }
}

TEST_F(MegatronTest, APrefixNamesThePairEvenBesideAFolderOfThatName) {
  pair(good_, counting<std::uint16_t>(0, 12));
  std::filesystem::create_directory(path("a"));
  EXPECT_EQ(expand_token_paths(path("a")), std::vector<std::string>{path("a")});
  expect_counting<std::uint16_t>(open({path("a")}), 12);
}

TEST_F(MegatronTest, GlobCountsEachPairOnce) {
  write("p_0.bin", counting<std::uint16_t>(0, 7));
  write("p_0.idx", MegatronIndex::of({3, 4}).bytes());
  write("p_1.bin", counting<std::uint16_t>(7, 5));
  write("p_1.idx", MegatronIndex::of({5}).bytes());
  for (const char* pattern : {"p_*", "p_*.bin", "p_*.idx"}) {
    const TokenLayout tokens = open(expand_token_paths(path(pattern)));
    expect_counting<std::uint16_t>(tokens, 12);
    EXPECT_EQ(tokens.detail, "megatron (2 shards)");
    EXPECT_EQ(tokens.documents, 3u);
  }
  EXPECT_EQ(expand_token_paths(path("p_0")), std::vector<std::string>{path("p_0")});
  EXPECT_THROW(expand_token_paths(path("p_2")), Error);
}

TEST_F(MegatronTest, EveryTokenDtypeIsRead) {
  const std::pair<int, DType> known[] = {{1, {DTypeKind::kUint, 1}}, {2, {DTypeKind::kInt, 1}},
                                         {3, {DTypeKind::kInt, 2}},  {4, {DTypeKind::kInt, 4}},
                                         {5, {DTypeKind::kInt, 8}},  {8, {DTypeKind::kUint, 2}}};
  for (const auto& [code, dtype] : known) {
    const auto idx = pair(MegatronIndex::of({3, 2}, code, dtype.size),
                          std::string(std::size_t{5} * dtype.size, 'x'));
    EXPECT_EQ(open({idx}).layout.dtype, dtype) << code;
    EXPECT_EQ(open({idx}).layout.rows, 5u) << code;
  }
}

TEST_F(MegatronTest, FloatsAndUnknownCodesAreRefused) {
  for (const int code : {0, 6, 7, 9, 10, 11, 255}) {
    good_.code = code;
    const auto error = why_not(good_);
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_EQ(error.offset(), 17u);
    EXPECT_THAT(error.what(), HasSubstr("dtype code " + std::to_string(code)));
  }
  good_.code = 7;
  EXPECT_THAT(why_not(good_).what(), HasSubstr("floats"));
  good_.code = 9;
  EXPECT_THAT(why_not(good_).hint_text(), HasSubstr("uint32"));
}

TEST_F(MegatronTest, ModesAtTheEndAreAllowed) {
  good_.modes = "0101";
  expect_counting<std::uint16_t>(open({pair(good_, counting<std::uint16_t>(0, 12))}), 12);
  for (const char* modes : {"0", "010", "01010"}) {
    good_.modes = modes;
    EXPECT_THAT(why_not(good_).what(), HasSubstr("4 sequences and 5 document bounds"));
  }
}

TEST_F(MegatronTest, OneDocumentMayHaveSeveralSequences) {
  good_.documents = {0, 0, 3, 4};
  good_.document_count = 4;
  EXPECT_EQ(open({pair(good_, counting<std::uint16_t>(0, 12))}).documents, 3u);
}

TEST_F(MegatronTest, IndexLargerThanAWindowIsRead) {
  const Lengths lengths(50'000, 2);
  const TokenLayout tokens =
      open({pair(MegatronIndex::of(lengths), counting<std::uint16_t>(0, 100'000))});
  expect_counting<std::uint16_t>(tokens, 100'000);
  EXPECT_EQ(tokens.documents, 50'000u);
  MegatronIndex late = MegatronIndex::of(lengths);
  late.pointers[49'998] += 1;
  EXPECT_THAT(why_not(late, 100'000).what(),
              AllOf(HasSubstr("sequence 49,998"), HasSubstr("not one stream")));
  EXPECT_EQ(why_not(late, 100'000).offset(), 34u + 4 * 50'000 + 8 * 49'998);
}

TEST_F(MegatronTest, MagicAndVersionAreChecked) {
  good_.version = 2;
  EXPECT_THAT(why_not(good_).what(), HasSubstr("version 2"));
  good_.magic[0] = 'N';
  EXPECT_THAT(why_not(good_).what(), HasSubstr("not a Megatron index"));
  EXPECT_THAT(token_refusal({path("a.bin")}).what(), HasSubstr("not a Megatron index"));
  good_.magic = "TNTIDX";
  EXPECT_THAT(why_not(good_).what(), HasSubstr("not a Megatron index"));
}

TEST_F(MegatronTest, TruncatedIndexIsRefusedAtEveryLength) {
  const std::string bytes = good_.bytes();
  write("a.bin", counting<std::uint16_t>(0, 12));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(token_refusal({write("a.idx", bytes.substr(0, length))}).kind(), ErrorKind::kFormat)
        << length;
  }
}

TEST_F(MegatronTest, CountsThatLieAreRefused) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t n :
       {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{5}, std::uint64_t{1} << 31,
        std::uint64_t{1} << 60, std::uint64_t{1} << 62, std::uint64_t{1} << 63, kMax}) {
    MegatronIndex index = good_;
    index.sequences = n;
    EXPECT_EQ(why_not(index).offset(), 18u) << n;
    index = good_;
    index.document_count = n == 5 ? 6 : n;  // 5 is right
    EXPECT_EQ(why_not(index).kind(), ErrorKind::kFormat) << n;
  }
  good_.sequences = kMax / 12 + 1;
  EXPECT_THAT(why_not(good_).what(), HasSubstr("more than 2^64"));
}

TEST_F(MegatronTest, NegativeLengthIsRefused) {
  good_.lengths[1] = -4;
  const auto error = why_not(good_);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("sequence 1"), HasSubstr("negative")));
  EXPECT_EQ(error.offset(), 34u + 4);
}

TEST_F(MegatronTest, PointersOutsideTheFileAreRefused) {
  for (const std::int64_t pointer :
       {std::int64_t{24}, std::int64_t{-2}, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max(), std::int64_t{25}}) {
    MegatronIndex index = good_;
    index.pointers[3] = pointer;
    const auto error = why_not(index);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("sequence 3"), HasSubstr("outside"))) << pointer;
    EXPECT_EQ(error.offset(), 34u + 16 + 24);
  }
  good_.lengths[1] = 0x7fffffff;
  EXPECT_THAT(why_not(good_).what(), HasSubstr("outside"));
}

TEST_F(MegatronTest, SequencesThatAreNotOneStreamAreRefused) {
  MegatronIndex index = good_;
  index.pointers[0] = 2;
  EXPECT_THAT(why_not(index).what(), AllOf(HasSubstr("sequence 0"), HasSubstr("not one stream")));
  index = good_;
  std::swap(index.lengths[0], index.lengths[3]);
  std::swap(index.pointers[0], index.pointers[3]);
  EXPECT_THAT(why_not(index).what(), HasSubstr("not one stream"));
  index = good_;
  index.pointers[1] = 0;
  EXPECT_THAT(why_not(index).what(), HasSubstr("sequence 1"));
}

TEST_F(MegatronTest, BinMustEndWhereTheSequencesDo) {
  EXPECT_THAT(why_not(good_, 13).what(),
              AllOf(HasSubstr("a.bin"), HasSubstr("end at byte 24"), HasSubstr("26")));
  EXPECT_THAT(why_not(good_, 11).what(), HasSubstr("outside"));
  EXPECT_THAT(why_not(MegatronIndex::of({}), 1).what(), HasSubstr("end at byte 0"));
}

TEST_F(MegatronTest, DocumentBoundsAreChecked) {
  const std::vector<Lengths> wrong = {{1, 1, 2, 3, 4}, {0, 2, 1, 3, 4},  {0, 1, 2, 3, 5},
                                      {0, 1, 2, 3, 3}, {0, -1, 2, 3, 4}, {-1, 0, 1, 2, 4}};
  for (const Lengths& documents : wrong) {
    good_.documents = documents;
    const auto error = why_not(good_);
    EXPECT_EQ(error.kind(), ErrorKind::kFormat);
    EXPECT_THAT(error.what(), HasSubstr("document bound"));
    EXPECT_GE(error.offset(), 34u + 48);
  }
}

TEST_F(MegatronTest, MissingBinIsENOENT) {
  write("a.idx", good_.bytes());
  const auto error = token_refusal({path("a.idx")});
  EXPECT_EQ(error.code(), ENOENT);
  EXPECT_EQ(error.path(), path("a.bin"));
  EXPECT_EQ(token_refusal({path("a")}).path(), path("a.bin"));
}

TEST_F(MegatronTest, EmptyPairIsFineAmongOthers) {
  write("0.bin", "");
  write("0.idx", MegatronIndex::of({}).bytes());
  write("1.bin", counting<std::uint16_t>(0, 3));
  write("1.idx", MegatronIndex::of({3}).bytes());
  const TokenLayout tokens = open({path("0"), path("1")});
  expect_counting<std::uint16_t>(tokens, 3);
  EXPECT_EQ(tokens.documents, 1u);
  EXPECT_THAT(token_refusal({path("0")}).what(), HasSubstr("no tokens in 1 file"));
}

TEST_F(MegatronTest, ShardWithItsOwnHeaderMayHaveAnyIdxBesideIt) {
  write("a.bin", llmc_shard(0, 5));
  write("a.idx", "something else");
  EXPECT_EQ(open({path("a.bin")}).detail, "llm.c (GPT-2)");
}

TEST_F(MegatronTest, IndexByAnotherNameIsNotReadAsTokens) {
  EXPECT_THAT(token_refusal({write("index.bin", good_.bytes())}).hint_text(), HasSubstr(".idx"));
}

TEST_F(MegatronTest, GivenDtypeMustBeTheIndexs) {
  const auto idx = pair(good_, counting<std::uint16_t>(0, 12));
  EXPECT_EQ(token_refusal({idx}, {.dtype = kU32}).kind(), ErrorKind::kInvalid);
  EXPECT_EQ(token_refusal({idx}, {.dtype = DType::parse("int16")}).kind(), ErrorKind::kInvalid);
  expect_counting<std::uint16_t>(open({idx}, {.dtype = kU16}), 12);
}

}  // namespace
}  // namespace evenkeel
