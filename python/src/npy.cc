// NPY headers for Python: NumPy has element types that the C++ library does not know.
#include "format/npy.h"

#include <nanobind/stl/string.h>

#include "format/container.h"
#include "src/bind.h"
#include "src/interruptible.h"
#include "src/paths.h"

namespace evenkeel::python {
namespace {

namespace nb = nanobind;
using nb::literals::operator""_a;

// Strings become bytes, as they are in the header. Nesting is limited by parse_literal.
nb::object to_python(const Literal& literal) {
  switch (literal.type) {
    case Literal::Type::kString:
      return nb::bytes(literal.text.data(), literal.text.size());
    case Literal::Type::kBool:
      return nb::bool_(literal.truth);
    case Literal::Type::kInt: {
      const auto number = static_cast<std::int64_t>(literal.number);  // below 2^63
      return nb::int_(literal.negative ? -number : number);
    }
    case Literal::Type::kTuple:
    case Literal::Type::kList:
    case Literal::Type::kDict:
      break;
  }
  nb::list items;
  for (const Literal& item : literal.items) items.append(to_python(item));
  if (literal.type == Literal::Type::kTuple) return nb::tuple(items);
  return items;
}

// (descr, encoding, bytes of an element); None for a file that is not NPY.
nb::object npy_descr(const nb::bytes& path, const std::string& member) {
  const auto header = interruptible([name = path_of(path), member]() -> std::optional<NpyHeader> {
    const Source source = open_source(name);
    const std::string head = source.read(0, kHeadBytes);
    if (is_zip(head)) return npz_header(source, member);
    if (!is_npy(head)) return std::nullopt;
    return read_npy_header(source, head);
  });
  if (!header) return nb::none();
  return nb::make_tuple(to_python(evenkeel::npy_descr(*header)), header->utf8 ? "utf-8" : "latin-1",
                        header->element.dtype.size);
}

}  // namespace

void bind_npy(nb::module_& module) {
  module.def(
      "npy_descr", &npy_descr, "path"_a, "member"_a = "",
      nb::sig("def npy_descr(path: bytes, member: str = '') -> tuple[object, str, int] | None"),
      "The element type that an NPY header names, with strings as bytes; their encoding; and\n"
      "the size of an element. None for a file that is not NPY.");
}

}  // namespace evenkeel::python
