#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

namespace evenkeel {
namespace {

using Kind = JsonValue::Kind;

TEST(JsonTree, HasTheValuesOfTheText) {
  const auto tree =
      parse_json(R"({"a": "x\u00e9", "b": [1, "two", {"c": 18446744073709551615}], "d": null})");
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->kind, Kind::kObject);
  EXPECT_EQ(tree->text_of("a"), "x\xc3\xa9");
  const JsonValue* list = tree->find("b", Kind::kList);
  ASSERT_TRUE(list);
  ASSERT_EQ(list->list.size(), 3u);
  EXPECT_EQ(list->list[0].whole, 1u);
  EXPECT_EQ(list->list[1].text, "two");
  EXPECT_EQ(list->list[2].find("c")->whole, UINT64_MAX);
  EXPECT_EQ(tree->find("d")->kind, Kind::kOther);
  EXPECT_EQ(tree->find("e"), nullptr);
  EXPECT_EQ(tree->find("a", Kind::kList), nullptr);
  EXPECT_EQ(tree->text_of("b"), "");
}

TEST(JsonTree, OfTwoFieldsWithOneNameTheLastCounts) {
  EXPECT_EQ(parse_json(R"({"a": [1, 2], "a": "last"})")->text_of("a"), "last");
  EXPECT_TRUE(parse_json(R"({"a": [1, 2], "a": "last"})")->find("a")->list.empty());
}

TEST(JsonTree, IsNoneForTextThatIsNoJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\": 1", "nul", "\"\x80\"", "{} {}"}) {
    EXPECT_FALSE(parse_json(text)) << text;
  }
  EXPECT_FALSE(parse_json(std::string_view("{}\0", 3)));
  EXPECT_FALSE(parse_json(std::string_view("{}\0{}", 5)));
}

TEST(JsonTree, IsNoneForTextNestedTooDeep) {
  const auto nested = [](std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  EXPECT_TRUE(parse_json(nested(100)));
  EXPECT_FALSE(parse_json(nested(101)));
  EXPECT_FALSE(parse_json(std::string(1'000'000, '[')));
}

class Log final : public JsonEvents {
 public:
  std::vector<std::string> events;

  void begin_object() override { events.emplace_back("{"); }
  void key(std::string_view name) override { events.push_back(std::string(name) + ":"); }
  void end_object() override { events.emplace_back("}"); }
  void begin_list() override { events.emplace_back("["); }
  void end_list() override { events.emplace_back("]"); }
  void text(std::string_view value) override { events.emplace_back(value); }
  void whole(std::uint64_t value) override { events.push_back(std::to_string(value)); }
  void other(const char* kind) override { events.emplace_back(kind); }
  void syntax_error(std::size_t position, std::string_view why) override {
    throw std::runtime_error(std::to_string(position) + " " + std::string(why));
  }
};

TEST(JsonEventsTest, ComeInTheOrderOfTheText) {
  Log log;
  parse_json(R"({"a": [1, -1, 0.5, null, true, "t"]})", log);
  EXPECT_THAT(log.events, testing::ElementsAre("{", "a:", "[", "1", "a negative number",
                                               "a number with a fraction, or larger than 64 bits",
                                               "null", "a boolean", "t", "]", "}"));
}

TEST(JsonEventsTest, AnErrorNamesItsPlace) {
  Log log;
  try {
    parse_json("{\"a\" 1}", log);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("6 syntax error"));
  }
}

}  // namespace
}  // namespace evenkeel
