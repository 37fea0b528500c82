#include "evenkeel/dtype.h"

#include "base/number.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

struct Named {
  std::string_view name, code;
  DType dtype;
};

constexpr Named kNamed[] = {
    {"bool", "b1", {DTypeKind::kBool, 1}},
    {"int8", "i1", {DTypeKind::kInt, 1}},
    {"int16", "i2", {DTypeKind::kInt, 2}},
    {"int32", "i4", {DTypeKind::kInt, 4}},
    {"int64", "i8", {DTypeKind::kInt, 8}},
    {"uint8", "u1", {DTypeKind::kUint, 1}},
    {"uint16", "u2", {DTypeKind::kUint, 2}},
    {"uint32", "u4", {DTypeKind::kUint, 4}},
    {"uint64", "u8", {DTypeKind::kUint, 8}},
    {"float16", "f2", {DTypeKind::kFloat, 2}},
    {"float32", "f4", {DTypeKind::kFloat, 4}},
    {"float64", "f8", {DTypeKind::kFloat, 8}},
    {"bfloat16", "bfloat16", {DTypeKind::kBfloat, 2}},
    {"complex64", "c8", {DTypeKind::kComplex, 8}},
    {"complex128", "c16", {DTypeKind::kComplex, 16}},
};

// The n of "V<n>" or "record[<n>]"; 0 if it is neither.
std::uint32_t record_size(std::string_view text) {
  if (text.starts_with("record[") && text.ends_with(']')) {
    text = text.substr(7, text.size() - 8);
  } else if (text.starts_with('V')) {
    text.remove_prefix(1);
  } else {
    return 0;
  }
  return parse_number<std::uint32_t>(text).value_or(0);
}

std::string known_names() {
  std::string names;
  for (const Named& known : kNamed) names += std::string(known.name) + ", ";
  return names + "V<bytes>";
}

std::string_view kind_word(DTypeKind kind) {
  switch (kind) {
    case DTypeKind::kBool:
      return "bool";
    case DTypeKind::kInt:
      return "int";
    case DTypeKind::kUint:
      return "uint";
    case DTypeKind::kFloat:
      return "float";
    case DTypeKind::kBfloat:
      return "bfloat";
    case DTypeKind::kComplex:
      return "complex";
    case DTypeKind::kRecord:
      return "record";
  }
  return "unknown";
}

}  // namespace

DType DType::parse(std::string_view name) {
  const std::string quoted = "'" + std::string(name) + "'";
  if (name.starts_with('>')) {
    throw Error(ErrorKind::kInvalid, "dtype", quoted + " has a byte order")
        .hint("byte order is a property of the file: leave '>' out and set big_endian");
  }
  const bool marked = !name.empty() && std::string_view("<|=").find(name[0]) != name.npos;
  const std::string_view code = marked ? name.substr(1) : name;
  for (const Named& known : kNamed) {
    if (code == known.code || name == known.name) return known.dtype;
  }
  if (const std::uint32_t size = record_size(code)) return {DTypeKind::kRecord, size};
  throw Error(ErrorKind::kInvalid, "dtype", quoted + " is not a known dtype")
      .hint("known: " + known_names() + "; short forms such as f4 or <u2 work too");
}

std::string DType::name() const {
  std::string word(kind_word(kind));
  if (kind == DTypeKind::kRecord) return word + "[" + std::to_string(size) + "]";
  if (kind == DTypeKind::kBool && size == 1) return word;
  return word + std::to_string(std::uint64_t{size} * 8);
}

}  // namespace evenkeel
