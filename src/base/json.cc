// The one file of the library that includes nlohmann-json, whose templates take seconds to compile.
#include "base/json.h"

#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

namespace evenkeel {
namespace {

constexpr std::size_t kMostLevels = 100;

// The functions that nlohmann-json calls, as listed in its documentation of sax_parse.
class SaxAdapter {
 public:
  explicit SaxAdapter(JsonEvents& events) : events_(events) {}

  bool start_object(std::size_t) { return events_.begin_object(), true; }
  bool key(const std::string& name) { return events_.key(name), true; }
  bool end_object() { return events_.end_object(), true; }
  bool start_array(std::size_t) { return events_.begin_list(), true; }
  bool end_array() { return events_.end_list(), true; }
  bool string(const std::string& value) { return events_.text(value), true; }
  bool number_unsigned(std::uint64_t value) { return events_.whole(value), true; }
  bool number_integer(std::int64_t) { return other("a negative number"); }
  bool number_float(double, const std::string&) {
    return other("a number with a fraction, or larger than 64 bits");
  }
  bool null() { return other("null"); }
  bool boolean(bool) { return other("a boolean"); }
  bool binary(std::vector<std::uint8_t>&) { return other("bytes"); }
  bool parse_error(std::size_t position, const std::string&, const std::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 3: syntax error ..."
    std::string_view why = error.what();
    const std::size_t colon = why.find(": ");
    if (colon != why.npos) why.remove_prefix(colon + 2);
    events_.syntax_error(position, why);
    return false;
  }

 private:
  bool other(const char* kind) { return events_.other(kind), true; }

  JsonEvents& events_;
};

class NoTree : public std::exception {};

class TreeBuilder final : public JsonEvents {
 public:
  JsonValue take() { return std::move(root_); }

  void begin_object() override { open(JsonValue::Kind::kObject); }
  void end_object() override { open_.pop_back(); }
  void begin_list() override { open(JsonValue::Kind::kList); }
  void end_list() override { open_.pop_back(); }
  void key(std::string_view name) override { key_ = name; }
  void text(std::string_view value) override {
    JsonValue& place = add();
    place.kind = JsonValue::Kind::kText;
    place.text = value;
  }
  void whole(std::uint64_t value) override {
    JsonValue& place = add();
    place.kind = JsonValue::Kind::kWhole;
    place.whole = value;
  }
  void other(const char*) override { add(); }
  void syntax_error(std::size_t, std::string_view) override { throw NoTree(); }

 private:
  void open(JsonValue::Kind kind) {
    if (open_.size() == kMostLevels) throw NoTree();
    JsonValue& place = add();
    place.kind = kind;
    open_.push_back(&place);
  }
  JsonValue& add() {
    if (open_.empty()) return root_;
    JsonValue& parent = *open_.back();
    if (parent.kind == JsonValue::Kind::kList) return parent.list.emplace_back();
    return parent.object[key_] = JsonValue();
  }

  JsonValue root_;
  std::vector<JsonValue*> open_;  // objects and lists that have begun, outermost first
  std::string key_;
};

}  // namespace

void parse_json(std::string_view text, JsonEvents& events) {
  // nlohmann-json takes a zero byte for the end of the text, and ignores what follows.
  if (const std::size_t zero = text.find('\0'); zero != text.npos) {
    return events.syntax_error(zero, "there is a zero byte");
  }
  SaxAdapter adapter(events);
  nlohmann::json::sax_parse(text, &adapter);
}

std::optional<JsonValue> parse_json(std::string_view text) {
  TreeBuilder builder;
  try {
    parse_json(text, builder);
  } catch (const NoTree&) {
    return std::nullopt;
  }
  return builder.take();
}

const JsonValue* JsonValue::find(std::string_view name) const {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &found->second;
}

const JsonValue* JsonValue::find(std::string_view name, Kind wanted) const {
  const JsonValue* const found = find(name);
  return found && found->kind == wanted ? found : nullptr;
}

std::string_view JsonValue::text_of(std::string_view name) const {
  const JsonValue* const found = find(name, Kind::kText);
  return found ? std::string_view(found->text) : std::string_view();
}

}  // namespace evenkeel
