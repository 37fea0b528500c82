#include "format/npy_descr.h"

#include <bit>
#include <charconv>
#include <limits>

#include "base/checked.h"
#include "format/part.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kMostSize = std::numeric_limits<std::uint32_t>::max();

[[noreturn]] void refuse(const Literal& where, std::string problem) {
  throw LiteralError{std::move(problem), where.at};
}

std::uint64_t size_of(const Literal& descr);

std::uint64_t checked_size(const Literal& where, std::uint64_t size, std::uint64_t count) {
  const auto bytes = checked_mul(size, count);
  if (!bytes || *bytes > kMostSize) refuse(where, "an element of more than 4 GiB");
  return *bytes;
}

// "<f4" split into order, letter and number. The "[ns]" of dates is ignored.
struct Code {
  char order = '|', letter = 0;
  std::uint64_t number = 0;
};

Code split(const Literal& descr) {
  const std::string unknown = "element type '" + printable(descr.text) + "' is not known";
  std::string_view rest = descr.text;
  Code code;
  if (!rest.empty() && std::string_view("<>|=").find(rest[0]) != rest.npos) {
    code.order = rest[0];
    rest.remove_prefix(1);
  }
  if (rest.empty()) refuse(descr, unknown);
  code.letter = rest[0];
  rest.remove_prefix(1);
  const bool date = code.letter == 'M' || code.letter == 'm';
  if (date && rest.ends_with(']')) rest = rest.substr(0, rest.find('['));
  if (code.letter == 'O') {
    refuse(descr, "it holds Python objects ('" + printable(descr.text) +
                      "'), which are stored as a pickle; a pickle is never executed");
  }
  const char* end = rest.data() + rest.size();
  const auto [stop, failed] = std::from_chars(rest.data(), end, code.number);
  if (rest.empty() || failed != std::errc() || stop != end) refuse(descr, unknown);
  return code;
}

Element scalar(const Literal& descr) {
  const Code code = split(descr);
  const std::uint64_t width = code.letter == 'U' ? 4 : 1;  // NumPy stores text as UCS-4
  const std::uint64_t bytes = checked_size(descr, code.number, width);
  if (bytes == 0) refuse(descr, "element type '" + printable(descr.text) + "' holds no bytes");
  const auto size = static_cast<std::uint32_t>(bytes);
  const bool native_big = std::endian::native == std::endian::big;
  const bool big = code.order == '>' || (code.order != '<' && native_big);
  const auto number = [&](DTypeKind kind, bool known) {
    return Element{{known ? kind : DTypeKind::kRecord, size}, big, known};
  };
  const bool whole = size == 1 || size == 2 || size == 4 || size == 8;
  switch (code.letter) {
    case 'b':
      return number(DTypeKind::kBool, size == 1);
    case 'i':
      return number(DTypeKind::kInt, whole);
    case 'u':
      return number(DTypeKind::kUint, whole);
    case 'f':
      return number(DTypeKind::kFloat, whole && size > 1);
    case 'c':
      return number(DTypeKind::kComplex, size == 8 || size == 16);
    case 'M':
    case 'm':
      if (size != 8) break;
      [[fallthrough]];
    case 'S':
    case 'a':
    case 'U':
    case 'V':
      return {{DTypeKind::kRecord, size}, big, true};
    default:
      break;
  }
  refuse(descr, "element type '" + printable(descr.text) + "' is not known");
}

// The number of elements of a sub-array; its shape may be 3 or (3,) or (2, 2).
std::uint64_t count_of(const Literal& shape) {
  const bool tuple = shape.type == Literal::Type::kTuple;
  std::uint64_t count = 1;
  for (std::size_t i = 0; i < (tuple ? shape.items.size() : 1); ++i) {
    const Literal& length = tuple ? shape.items[i] : shape;
    if (length.type != Literal::Type::kInt || length.negative) {
      refuse(length, "a sub-array's shape must be whole numbers of 0 or more");
    }
    count = checked_size(shape, count, length.number);
  }
  return count;
}

bool is_name(const Literal& name) {
  if (name.type == Literal::Type::kString) return true;
  return name.type == Literal::Type::kTuple && name.items.size() == 2 &&  // (title, name)
         name.items[0].type == Literal::Type::kString &&
         name.items[1].type == Literal::Type::kString;
}

std::uint64_t fields_size(const Literal& fields) {
  std::uint64_t total = 0;
  for (const Literal& field : fields.items) {
    const std::size_t n = field.items.size();
    if (field.type != Literal::Type::kTuple || n < 2 || n > 3 || !is_name(field.items[0])) {
      refuse(field, "a field must be (name, type) or (name, type, shape)");
    }
    const std::uint64_t count = n == 3 ? count_of(field.items[2]) : 1;
    total = checked_size(field, total + checked_size(field, size_of(field.items[1]), count), 1);
  }
  return total;
}

std::uint64_t size_of(const Literal& descr) {
  if (descr.type == Literal::Type::kString) return scalar(descr).dtype.size;
  if (descr.type == Literal::Type::kList) return fields_size(descr);
  if (descr.type == Literal::Type::kTuple && descr.items.size() == 2) {  // (type, shape)
    return checked_size(descr, size_of(descr.items[0]), count_of(descr.items[1]));
  }
  refuse(descr, "descr must be a string or a list of fields");
}

}  // namespace

Element read_descr(const Literal& descr) {
  if (descr.type == Literal::Type::kString) return scalar(descr);
  const std::uint64_t size = size_of(descr);
  if (size == 0) refuse(descr, "an element holds no bytes");
  return {{DTypeKind::kRecord, static_cast<std::uint32_t>(size)}};
}

}  // namespace evenkeel
