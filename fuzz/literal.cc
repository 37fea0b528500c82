// The Python literals of NPY headers.
#include "format/literal.h"

#include "format/npy_descr.h"
#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

// Offsets and texts must lie inside the input: nothing was read beyond it.
void check(const Literal& literal, std::string_view text) {
  MUST(literal.at <= text.size());
  const bool inside = literal.text.empty() ||
                      (literal.text.data() >= text.data() &&
                       literal.text.data() + literal.text.size() <= text.data() + text.size());
  MUST(inside);
  MUST(literal.type != Literal::Type::kDict || literal.items.size() % 2 == 0);
  for (const Literal& item : literal.items) check(item, text);
}

FUZZ_TARGET(literal) {
  try {
    const Literal literal = parse_literal(input.rest());
    check(literal, input.rest());
    const Element element = read_descr(literal);
    MUST(element.dtype.size >= 1);
    MUST(element.dtype.swap_unit() >= 1 && element.dtype.size % element.dtype.swap_unit() == 0);
  } catch (const LiteralError& error) {
    MUST(!error.problem.empty());
  }
}

}  // namespace
}  // namespace evenkeel::fuzz
