// Parses JSON from files and servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

// Receives a JSON text event by event, so that no tree is built for a long text.
class JsonEvents {
 public:
  virtual void begin_object() = 0;
  virtual void key(std::string_view name) = 0;
  virtual void end_object() = 0;
  virtual void begin_list() = 0;
  virtual void end_list() = 0;
  virtual void text(std::string_view value) = 0;
  virtual void whole(std::uint64_t value) = 0;
  // A value of another kind: "null", "a boolean", "a negative number", "a number with a fraction,
  // or larger than 64 bits".
  virtual void other(const char* kind) = 0;
  // The text is not JSON. Must throw.
  virtual void syntax_error(std::size_t position, std::string_view why) = 0;

 protected:
  ~JsonEvents() = default;
};
// Throws what `events` throws.
void parse_json(std::string_view text, JsonEvents& events);

// A short JSON text as a tree.
struct JsonValue {
  enum class Kind { kOther, kText, kWhole, kList, kObject };
  Kind kind = Kind::kOther;
  std::string text;
  std::uint64_t whole = 0;
  std::vector<JsonValue> list;
  std::map<std::string, JsonValue, std::less<>> object;

  // Returns nullptr if this is not an object or has no such field.
  const JsonValue* find(std::string_view name) const;
  // The same, but only for a field of this kind.
  const JsonValue* find(std::string_view name, Kind wanted) const;
  // The field's text; empty if there is none.
  std::string_view text_of(std::string_view name) const;
};
// Returns nullopt if the text is not JSON or is nested more than 100 levels deep. If two fields
// have the same name, the last one counts.
std::optional<JsonValue> parse_json(std::string_view text);

}  // namespace evenkeel
