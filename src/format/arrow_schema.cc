#include "format/arrow_schema.h"

#include <optional>
#include <utility>

namespace evenkeel {
namespace {

constexpr int kDeepest = 32;
// Tables may share their children, so a small schema can have more fields than bytes.
constexpr std::uint64_t kMostFields = 1 << 18;
constexpr std::uint64_t kLongestColumn = 64 << 10;

enum class ArrowType : std::uint8_t {
  kNone,
  kNull,
  kInt,
  kFloatingPoint,
  kBinary,
  kUtf8,
  kBool,
  kDecimal,
  kDate,
  kTime,
  kTimestamp,
  kInterval,
  kList,
  kStruct,
  kUnion,
  kFixedSizeBinary,
  kFixedSizeList,
  kMap,
  kDuration,
  kLargeBinary,
  kLargeUtf8,
  kLargeList,
  kRunEndEncoded,
  kBinaryView,
  kUtf8View,
  kListView,
  kLargeListView
};

constexpr const char* kArrowNames[] = {"none",
                                       "null",
                                       "int",
                                       "float",
                                       "binary",
                                       "utf8",
                                       "bool",
                                       "decimal",
                                       "date",
                                       "time",
                                       "timestamp",
                                       "interval",
                                       "list",
                                       "struct",
                                       "union",
                                       "binary",
                                       "list",
                                       "map",
                                       "duration",
                                       "binary",
                                       "utf8",
                                       "list",
                                       "run-end-encoded",
                                       "binary view",
                                       "utf8 view",
                                       "list view",
                                       "list view"};

// The members of a field's table.
constexpr int kName = 0, kTypeCode = 2, kTypeTable = 3, kDictionary = 4, kChildren = 5;

// The number of nodes and buffers of a field with all its children.
struct FieldSize {
  std::uint64_t nodes = 0, buffers = 0, views = 0;
  void operator+=(const FieldSize& other) {
    nodes += other.nodes;
    buffers += other.buffers;
    views += other.views;
  }
};

Error bad_schema(const std::string& problem) {
  return Error(ErrorKind::kFormat, "open", "bad Arrow schema: " + problem);
}

ArrowType type_of(const FlatTable& field) {
  const auto code = field.number<std::uint8_t>(kTypeCode, 0);
  if (code > static_cast<std::uint8_t>(ArrowType::kLargeListView)) {
    throw bad_schema("there is no type " + std::to_string(code));
  }
  return ArrowType{code};
}

class FieldCounter {
 public:
  explicit FieldCounter(bool version_4) : version_4_(version_4) {}
  FieldSize size_of(const FlatTable& field, int depth) {
    if (++visited_ > kMostFields || depth > kDeepest) throw bad_schema("it has too many fields");
    if (field.table(kDictionary)) return {1, 2, 0};  // numbers that stand for values
    FieldSize size{1, 0, 0};
    switch (type_of(field)) {
      case ArrowType::kNone:
        throw bad_schema("a field without a type");
      case ArrowType::kNull:
        break;
      case ArrowType::kRunEndEncoded:
        size.buffers = version_4_ ? 1 : 0;
        break;
      case ArrowType::kInt:
      case ArrowType::kFloatingPoint:
      case ArrowType::kBool:
      case ArrowType::kDecimal:
      case ArrowType::kDate:
      case ArrowType::kTime:
      case ArrowType::kTimestamp:
      case ArrowType::kInterval:
      case ArrowType::kDuration:
      case ArrowType::kFixedSizeBinary:
      case ArrowType::kList:
      case ArrowType::kLargeList:
      case ArrowType::kMap:
        size.buffers = 2;
        break;
      case ArrowType::kBinary:
      case ArrowType::kUtf8:
      case ArrowType::kLargeBinary:
      case ArrowType::kLargeUtf8:
      case ArrowType::kListView:
      case ArrowType::kLargeListView:
        size.buffers = 3;
        break;
      case ArrowType::kStruct:
      case ArrowType::kFixedSizeList:
        size.buffers = 1;
        break;
      case ArrowType::kUnion: {
        const auto type = field.table(kTypeTable);
        const bool dense = type && type->number<std::int16_t>(0, 0) == 1;
        size.buffers = (dense ? 2 : 1) + (version_4_ ? 1 : 0);
        break;
      }
      case ArrowType::kBinaryView:
      case ArrowType::kUtf8View:
        size.buffers = 2;
        size.views = 1;
        break;
    }
    const FlatTable::Items children = field.list(kChildren, 4);
    for (std::uint64_t i = 0; i < children.count; ++i) {
      size += size_of(field.table_at(children.begin + 4 * i), depth + 1);
    }
    return size;
  }

 private:
  const bool version_4_;
  std::uint64_t visited_ = 0;
};

// The type of one number; empty if the field does not hold fixed-width numbers.
std::optional<DType> number_type(const FlatTable& field) {
  using enum DTypeKind;
  const auto type = field.table(kTypeTable);
  if (!type) return std::nullopt;
  switch (type_of(field)) {
    case ArrowType::kInt: {
      const auto bits = type->number<std::int32_t>(0, 0);
      if (bits != 8 && bits != 16 && bits != 32 && bits != 64) throw bad_schema("a bad int");
      return DType{type->number<std::uint8_t>(1, 0) != 0 ? kInt : kUint,
                   static_cast<std::uint32_t>(bits) / 8};
    }
    case ArrowType::kFloatingPoint: {
      const auto precision = type->number<std::int16_t>(0, 0);
      if (precision < 0 || precision > 2) throw bad_schema("a bad float");
      return DType{kFloat, 2u << precision};
    }
    case ArrowType::kFixedSizeBinary: {
      const auto width = type->number<std::int32_t>(0, 0);
      if (width < 1) return std::nullopt;
      return DType{kRecord, static_cast<std::uint32_t>(width)};
    }
    case ArrowType::kDate:
      return DType{kInt, type->number<std::int16_t>(0, 1) == 0 ? 4u : 8u};
    case ArrowType::kTime:
      return DType{kInt, type->number<std::int32_t>(1, 32) == 32 ? 4u : 8u};
    case ArrowType::kTimestamp:
    case ArrowType::kDuration:
      return DType{kInt, 8};
    default:
      return std::nullopt;
  }
}

FlatTable only_child(const FlatTable& field) {
  const FlatTable::Items children = field.list(kChildren, 4);
  if (children.count != 1) throw bad_schema("a list without values");
  return field.table_at(children.begin);
}

void describe_numbers(ArrowColumn& column, FlatTable field) {
  while (type_of(field) == ArrowType::kFixedSizeList && !field.table(kDictionary)) {
    const auto type = field.table(kTypeTable);
    const std::int32_t length = type ? type->number<std::int32_t>(0, 0) : 0;
    if (length < 1) {
      column.refused = "lists of " + std::to_string(length) + " values have no bytes";
      return;
    }
    column.lengths.push_back(static_cast<std::uint64_t>(length));
    field = only_child(field);
  }
  const auto number = field.table(kDictionary) ? std::nullopt : number_type(field);
  const std::string name = kArrowNames[static_cast<std::size_t>(type_of(field))];
  if (number) {
    column.dtype = *number;
    column.type += number->name();
    return;
  }
  column.type += name;
  if (field.table(kDictionary)) {
    column.refused = "it is dictionary-encoded";
  } else if (type_of(field) == ArrowType::kBool) {
    column.refused = "Arrow stores booleans as bits; cast it to uint8";
  } else {
    column.refused = "it holds " + name + ", not numbers of a fixed width";
  }
}

ArrowColumn describe_column(const FlatTable& field) {
  ArrowColumn column;
  column.name = field.text(kName);
  FlatTable values = field;
  const ArrowType type = type_of(field);
  if ((type == ArrowType::kList || type == ArrowType::kLargeList) && !field.table(kDictionary)) {
    column.list_offset_bytes = type == ArrowType::kList ? 4 : 8;
    column.type = "list of ";
    values = only_child(field);
  }
  describe_numbers(column, values);
  return column;
}

}  // namespace

ArrowSchema read_arrow_schema(const FlatTable& table, bool version_4) {
  ArrowSchema schema;
  schema.big_endian = table.number<std::int16_t>(0, 0) == 1;
  FieldCounter counter(version_4);
  FieldSize before;
  std::uint64_t names = 0;
  const FlatTable::Items fields = table.list(1, 4);
  for (std::uint64_t i = 0; i < fields.count; ++i) {
    const FlatTable field = table.table_at(fields.begin + 4 * i);
    const FieldSize size = counter.size_of(field, 0);
    ArrowColumn column = describe_column(field);
    names += column.name.size();
    if (column.name.size() > kLongestColumn || names > table.bytes()) {
      throw bad_schema("the names of its columns are too long");
    }
    column.first_node = before.nodes;
    column.first_buffer = before.buffers;
    column.views_before = before.views;
    schema.columns.push_back(std::move(column));
    before += size;
  }
  return schema;
}

}  // namespace evenkeel
