#include "format/literal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace evenkeel {
namespace {

using Type = Literal::Type;

// The literal as text without blanks: "(1,2)" for " ( 1, 2 ,)".
std::string plain(const Literal& literal) {
  std::string inner;
  for (const Literal& item : literal.items) inner += plain(item) + ",";
  switch (literal.type) {
    case Type::kString:
      return "<" + std::string(literal.text) + ">";
    case Type::kInt:
      return (literal.negative ? "-" : "") + std::to_string(literal.number);
    case Type::kBool:
      return literal.truth ? "True" : "False";
    case Type::kTuple:
      return "(" + inner + ")";
    case Type::kList:
      return "[" + inner + "]";
    case Type::kDict:
      return "{" + inner + "}";
  }
  return "?";
}

std::string problem(std::string_view text) {
  try {
    return "accepted as " + plain(parse_literal(text));
  } catch (const LiteralError& error) {
    EXPECT_LE(error.at, text.size() + 1);
    return error.problem;
  }
}

TEST(LiteralTest, ReadsWhatHeadersHold) {
  const auto read = [](std::string_view text) { return plain(parse_literal(text)); };
  EXPECT_EQ(read(" 12 "), "12");
  EXPECT_EQ(read("12L"), "12");
  EXPECT_EQ(read("-3"), "-3");
  EXPECT_EQ(read("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(read("True"), "True");
  EXPECT_EQ(read("'a\"b'"), "<a\"b>");
  EXPECT_EQ(read("\"a'b\""), "<a'b>");
  EXPECT_EQ(read(R"('it\'s \\')"), R"(<it\'s \\>)");
  EXPECT_EQ(read("()"), "()");
  EXPECT_EQ(read("(5,)"), "(5,)");
  EXPECT_EQ(read("[1,\n2\t, ]"), "[1,2,]");
  EXPECT_EQ(read("{'a': (1, 2), 'b': [],}"), "{<a>,(1,2,),<b>,[],}");
}

TEST(LiteralTest, OneValueInBracketsIsThatValue) {
  EXPECT_EQ(plain(parse_literal("(5)")), "5");
  EXPECT_EQ(plain(parse_literal("((((('x')))))")), "<x>");
}

TEST(LiteralTest, EverythingElseIsRefused) {
  for (const char* text : {"",
                           " ",
                           "None",
                           "1.5",
                           "1e3",
                           "0x10",
                           "1_000",
                           "--1",
                           "- 1",
                           "+1",
                           "'",
                           "'a",
                           "'a\\'",
                           "'a\\",
                           "\"a'",
                           "'a\nb'",
                           "b'a'",
                           "u'a'",
                           "(",
                           ")",
                           "(1",
                           "(1 2)",
                           "(,)",
                           "(1,,)",
                           "[1)",
                           "{1}",
                           "{1:}",
                           "{:1}",
                           "{1:2 3:4}",
                           "1 2",
                           "(1,) x",
                           "true",
                           "True1",
                           "__import__('os')",
                           "1+1",
                           "[0]*9",
                           "# a",
                           "...",
                           "{**{}}",
                           "9223372036854775808",
                           "99999999999999999999999999",
                           "\xff",
                           "12LL",
                           "lambda: 0"}) {
    EXPECT_THAT(problem(text), ::testing::Not(::testing::StartsWith("accepted"))) << text;
  }
  EXPECT_THAT(problem(std::string_view("(1,\0)", 5)), ::testing::HasSubstr("\\x00"));
}

TEST(LiteralTest, HostileSizesEndEarly) {
  EXPECT_THAT(problem(std::string(1 << 20, '[')), ::testing::HasSubstr("32 levels"));
  std::string many = "(";
  for (int i = 0; i < 100'000; ++i) many += "0,";
  EXPECT_THAT(problem(many + ")"), ::testing::HasSubstr("65,536 values"));
}

TEST(LiteralTest, ErrorsPointAtThePlace) {
  try {
    parse_literal("{'a': 1.5}");
    FAIL();
  } catch (const LiteralError& error) {
    EXPECT_EQ(error.at, 7u);
  }
}

RC_GTEST_PROP(LiteralTest, AnyTextOfThisAlphabetParsesOrIsRefused, ()) {
  const auto text = *rc::gen::container<std::string>(
      rc::gen::elementOf(std::string("(){}[],:'\"\\ \n019-LTrueFals.")));
  problem(text);
}

}  // namespace
}  // namespace evenkeel
