// A strict parser for the few Python literals that an NPY header may contain. Nothing is evaluated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

struct Literal {
  enum class Type : std::uint8_t { kString, kInt, kBool, kTuple, kList, kDict };
  Type type = Type::kInt;
  bool truth = false;          // of a bool
  bool negative = false;       // of an int
  std::size_t at = 0;          // where it begins in the text
  std::uint64_t number = 0;    // an int without its sign, below 2^63
  std::string_view text;       // between the quotes; escapes are not decoded
  std::vector<Literal> items;  // of a dict: key, value, key, value, ...
};

// What is wrong in an untrusted text, and where; `at` counts from the beginning of the text.
struct LiteralError {
  std::string problem;
  std::size_t at;
};

// Parses `text`, which must be one literal with optional blanks around it, and must outlive the
// result. Throws LiteralError for bad syntax, floats, None, nesting beyond 32 levels, or more than
// 65,536 values.
Literal parse_literal(std::string_view text);

}  // namespace evenkeel
