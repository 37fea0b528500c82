#include "cli/table.h"

#include <gtest/gtest.h>

#include "cli/describe.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

TEST(Table, ColumnsLineUpWhateverTheLetters) {
  Table table({"engine", "× map"});
  table.add({"map", "1.0"});
  table.add({"direct", "1,234.5"});
  EXPECT_EQ(table.text(),
            "engine     × map\n"
            "map          1.0\n"
            "direct   1,234.5\n");
}

TEST(Table, FactsHangUnderTheirNames) {
  EXPECT_EQ(facts({{"a", "one"}, {"long", "two"}}), "a     one\nlong  two\n");
}

TEST(Table, LongTextIsBrokenBetweenWords) {
  EXPECT_EQ(wrapped("aa bb cc", 2, 7), "  aa bb\n  cc\n");
  EXPECT_EQ(wrapped("unbreakable", 2, 5), "  unbreakable\n");
  EXPECT_EQ(wrapped("", 2), "  \n");
}

TEST(Describe, NumbersReadWell) {
  EXPECT_EQ(describe_shape({3'000'000, 162}), "3,000,000 × 162");
  EXPECT_EQ(describe_shape({}), "one value");
  EXPECT_EQ(describe_rate(0.52), "0.5");
  EXPECT_EQ(describe_rate(123456.7), "123,457");
  EXPECT_EQ(describe_ratio(0.0049), "0.0049");
  EXPECT_EQ(describe_ratio(1.26), "1.3");
  EXPECT_EQ(describe_files({"a", "b", "c"}), "a and 2 more");
}

TEST(Terminal, ShellTakesTheWordAsItIs) {
  EXPECT_EQ(shell_word("/data/a-1.npy"), "/data/a-1.npy");
  EXPECT_EQ(shell_word("shard-*.npy"), "'shard-*.npy'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(Options, ListsAreParsed) {
  EXPECT_EQ(parse_shape("-1,162"), (std::vector<std::int64_t>{-1, 162}));
  for (const char* bad : {"", "1,", "1.5", "1x2", "99999999999999999999"}) {
    EXPECT_THROW(parse_shape(bad), Error) << bad;
  }
  EXPECT_EQ(parse_engines("map,direct,map"),
            (std::vector<EngineKind>{EngineKind::kMap, EngineKind::kDirect}));
  EXPECT_THROW(parse_engines("map,"), Error);
}

}  // namespace
}  // namespace evenkeel::cli
