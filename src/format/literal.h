// A strict reader of the few Python literals that an NPY header may hold. Nothing is evaluated.
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
  std::string_view text;       // between the quotes, escapes as they stand
  std::vector<Literal> items;  // of a dict: key, value, key, value, ...
};

// Where in an untrusted text something is wrong; `at` counts from the text's beginning.
struct LiteralError {
  std::string problem;
  std::size_t at;
};

// The one literal that `text` is, blanks around it aside. It must outlive the result. Throws
// LiteralError: for bad syntax, floats, None, nesting beyond 32 levels, more than 65,536 values.
Literal parse_literal(std::string_view text);

}  // namespace evenkeel
