// GGUF, the files of llama.cpp: typed keys, a table of tensors, and their aligned bytes. See
// docs/formats.md.
#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/checked.h"
#include "base/number.h"
#include "base/utf8.h"
#include "evenkeel/bytes.h"
#include "format/part.h"
#include "format/tensor_table.h"

namespace evenkeel {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kMostDimensions = 4;  // ggml's own limit
constexpr std::uint64_t kLongestName = 65535;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kAtATime = 1 << 20;
// The limit for all keys and tensors. Vocabularies take about 10 MiB. Without a limit, a huge hole
// in a file would be parsed as empty strings almost forever.
constexpr std::uint64_t kMostHeaderBytes = 128_MiB;
constexpr std::uint32_t kMostNesting = 8;

// How a type of ggml stores numbers: blocks of `numbers` numbers in `bytes` bytes.
struct BlockType {
  std::uint32_t code;
  const char* name;
  std::uint32_t numbers, bytes;
  std::optional<DType> dtype;
};

const BlockType* find_block_type(std::uint32_t code) {
  using enum DTypeKind;
  static const BlockType types[] = {
      {0, "F32", 1, 4, DType{kFloat, 4}},
      {1, "F16", 1, 2, DType{kFloat, 2}},
      {2, "Q4_0", 32, 18, {}},
      {3, "Q4_1", 32, 20, {}},
      {6, "Q5_0", 32, 22, {}},
      {7, "Q5_1", 32, 24, {}},
      {8, "Q8_0", 32, 34, {}},
      {9, "Q8_1", 32, 40, {}},
      {10, "Q2_K", 256, 84, {}},
      {11, "Q3_K", 256, 110, {}},
      {12, "Q4_K", 256, 144, {}},
      {13, "Q5_K", 256, 176, {}},
      {14, "Q6_K", 256, 210, {}},
      {15, "Q8_K", 256, 292, {}},
      {16, "IQ2_XXS", 256, 66, {}},
      {17, "IQ2_XS", 256, 74, {}},
      {18, "IQ3_XXS", 256, 98, {}},
      {19, "IQ1_S", 256, 50, {}},
      {20, "IQ4_NL", 32, 18, {}},
      {21, "IQ3_S", 256, 110, {}},
      {22, "IQ2_S", 256, 82, {}},
      {23, "IQ4_XS", 256, 136, {}},
      {24, "I8", 1, 1, DType{kInt, 1}},
      {25, "I16", 1, 2, DType{kInt, 2}},
      {26, "I32", 1, 4, DType{kInt, 4}},
      {27, "I64", 1, 8, DType{kInt, 8}},
      {28, "F64", 1, 8, DType{kFloat, 8}},
      {29, "IQ1_M", 256, 56, {}},
      {30, "BF16", 1, 2, DType{kBfloat, 2}},
      {34, "TQ1_0", 256, 54, {}},
      {35, "TQ2_0", 256, 66, {}},
      {39, "MXFP4", 32, 17, {}},
      {40, "NVFP4", 64, 36, {}},
      {41, "Q1_0", 128, 18, {}},
  };
  const auto* found = std::ranges::find(types, code, &BlockType::code);
  return found == std::end(types) ? nullptr : found;
}

enum class Value : std::uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64
};

// The size of values with a fixed size; 0 for strings and lists.
std::uint64_t size_of(Value type) {
  switch (type) {
    case Value::kUint8:
    case Value::kInt8:
    case Value::kBool:
      return 1;
    case Value::kUint16:
    case Value::kInt16:
      return 2;
    case Value::kUint32:
    case Value::kInt32:
    case Value::kFloat32:
      return 4;
    case Value::kUint64:
    case Value::kInt64:
    case Value::kFloat64:
      return 8;
    case Value::kString:
    case Value::kArray:
      break;
  }
  return 0;
}

bool is_utf8(std::string_view text) {
  constexpr std::string_view kReplacementItself = "\xef\xbf\xbd";
  while (!text.empty()) {
    const bool itself = text.starts_with(kReplacementItself);
    if (take_char(text) == kReplacement && !itself) return false;
  }
  return true;
}

// The memory of a header, reserved step by step while it is read: a small file may claim any
// number of entries.
class HeaderShare {
 public:
  explicit HeaderShare(const Budget& budget) : budget_(budget) { add(2 * kAtATime); }
  void add(std::uint64_t bytes) {
    used_ += bytes;
    if (used_ <= reserved_) return;
    const std::uint64_t more = std::max(used_ - reserved_, kAtATime);
    shares_.push_back(budget_.reserve(more, "header of weights"));
    reserved_ += more;
  }

 private:
  const Budget& budget_;
  std::uint64_t used_ = 0, reserved_ = 0;
  std::vector<Reservation> shares_;
};

// Reads the header from front to back, with 1 MiB of it in memory at a time.
class Cursor {
 public:
  explicit Cursor(const Source& source) : source_(source) {}

  std::uint64_t place() const { return place_; }
  Error error(std::string problem) const {
    return Error(ErrorKind::kFormat, "open", "bad GGUF header: " + std::move(problem))
        .in(source_.path)
        .at(place_);
  }
  void require(std::uint64_t bytes) const {
    if (bytes <= source_.identity.size - place_) return;
    throw error("it continues for " + with_commas(bytes) + " bytes, but only " +
                with_commas(source_.identity.size - place_) + " follow")
        .hint("the download may be incomplete");
  }
  void skip(std::uint64_t bytes) {
    require(bytes);
    go_on(bytes);
  }
  template <class T>
  T number() {
    const std::string_view bytes = take(sizeof(T));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    if constexpr (std::endian::native == std::endian::big && sizeof(T) > 1) {
      auto* raw = reinterpret_cast<unsigned char*>(&value);
      std::reverse(raw, raw + sizeof(T));
    }
    return value;
  }
  std::string name(const char* what) {
    const auto length = number<std::uint64_t>();
    if (length > kLongestName) {
      throw error(std::string(what) + " of " + with_commas(length) + " bytes is too long");
    }
    std::string text(take(length));
    if (!is_utf8(text))
      throw error(std::string(what) + ", \"" + printable(text) + "\", is not UTF-8");
    return text;
  }
  void skip_text() { skip(number<std::uint64_t>()); }
  // The next bytes, valid until the next call.
  std::string_view take(std::uint64_t bytes) {
    require(bytes);
    if (place_ < begin_ || place_ + bytes > begin_ + window_.size()) {
      begin_ = place_;
      window_ = source_.read(place_, std::max(bytes, kAtATime));
      if (window_.size() < bytes) throw error("the file became shorter");
      source_.drop(place_, window_.size());
    }
    const std::string_view taken(window_.data() + (place_ - begin_), bytes);
    go_on(bytes);
    return taken;
  }

 private:
  void go_on(std::uint64_t bytes) {
    place_ += bytes;
    if (place_ > kMostHeaderBytes) {
      throw error("it is longer than " + format_size(kMostHeaderBytes));
    }
  }

  const Source& source_;
  std::uint64_t place_ = 0, begin_ = 0;
  std::string window_;
};

void skip_array(Cursor& cursor, std::uint32_t depth) {
  if (depth == kMostNesting) throw cursor.error("lists within lists, too deep");
  const auto type = Value{cursor.number<std::uint32_t>()};
  const auto count = cursor.number<std::uint64_t>();
  if (const std::uint64_t size = size_of(type)) {
    const auto bytes = checked_mul(count, size);
    if (!bytes) throw cursor.error("a list of " + with_commas(count) + " values");
    return cursor.skip(*bytes);
  }
  if (type != Value::kString && type != Value::kArray) {
    throw cursor.error("there is no type " + std::to_string(static_cast<std::uint32_t>(type)));
  }
  cursor.require(count < UINT64_MAX / 8 ? count * 8 : UINT64_MAX);  // each has a length
  for (std::uint64_t i = 0; i < count; ++i) {
    if (type == Value::kString) {
      cursor.skip_text();
    } else {
      skip_array(cursor, depth + 1);
    }
  }
}

// The value as text; empty for lists and long strings, which are skipped.
std::optional<std::string> read_value(Cursor& cursor, Value type) {
  switch (type) {
    case Value::kUint8:
      return std::to_string(cursor.number<std::uint8_t>());
    case Value::kInt8:
      return std::to_string(cursor.number<std::int8_t>());
    case Value::kUint16:
      return std::to_string(cursor.number<std::uint16_t>());
    case Value::kInt16:
      return std::to_string(cursor.number<std::int16_t>());
    case Value::kUint32:
      return std::to_string(cursor.number<std::uint32_t>());
    case Value::kInt32:
      return std::to_string(cursor.number<std::int32_t>());
    case Value::kFloat32:
      return number_text(cursor.number<float>());
    case Value::kBool:
      return cursor.number<std::uint8_t>() != 0 ? "true" : "false";
    case Value::kUint64:
      return std::to_string(cursor.number<std::uint64_t>());
    case Value::kInt64:
      return std::to_string(cursor.number<std::int64_t>());
    case Value::kFloat64:
      return number_text(cursor.number<double>());
    case Value::kString: {
      const auto length = cursor.number<std::uint64_t>();
      if (length > kLongestName) {  // a chat template, a licence
        cursor.skip(length);
        return std::nullopt;
      }
      return std::string(cursor.take(length));
    }
    case Value::kArray:
      skip_array(cursor, 0);
      return std::nullopt;
  }
  throw cursor.error("there is no type " + std::to_string(static_cast<std::uint32_t>(type)));
}

// The tensor's offset counts from the first byte of the data, whose position is not known yet.
Tensor read_tensor(Cursor& cursor) {
  Tensor tensor;
  tensor.name = cursor.name("a name");
  const auto fail = [&](const std::string& problem) {
    return cursor.error("tensor \"" + printable(tensor.name) + "\" " + problem);
  };
  const auto dimensions = cursor.number<std::uint32_t>();
  if (dimensions > kMostDimensions) {
    throw fail("has " + with_commas(dimensions) + " axes; ggml has at most 4");
  }
  std::optional<std::uint64_t> numbers = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    tensor.shape.push_back(cursor.number<std::uint64_t>());
    numbers = numbers ? checked_mul(*numbers, tensor.shape.back()) : numbers;
  }
  const std::uint64_t row = tensor.shape.empty() ? 1 : tensor.shape.front();
  std::ranges::reverse(tensor.shape);  // ggml names the axis that runs fastest first
  const auto code = cursor.number<std::uint32_t>();
  const BlockType* type = find_block_type(code);
  if (!type) {
    throw fail("has type " + std::to_string(code) + ", which is not known here")
        .hint("without the type its size is unknown, and nothing after it can be found");
  }
  tensor.type = type->name;
  tensor.dtype = type->dtype;
  if (row % type->numbers != 0) {
    throw fail("has rows of " + with_commas(row) + " numbers, but " + type->name +
               " stores them in blocks of " + std::to_string(type->numbers));
  }
  const auto bytes = numbers ? checked_mul(*numbers / type->numbers, type->bytes) : std::nullopt;
  if (!bytes) throw fail("has shape " + shape_text(tensor.shape) + ", larger than any file");
  tensor.bytes = *bytes;
  tensor.offset = cursor.number<std::uint64_t>();
  return tensor;
}

void require_different_names(const Cursor& cursor, const std::vector<Tensor>& tensors) {
  std::unordered_set<std::string_view> names;
  for (const Tensor& tensor : tensors) {
    if (names.insert(tensor.name).second) continue;
    throw cursor.error("two tensors are called \"" + printable(tensor.name) + '"');
  }
}

// Makes offsets count from the start of the file instead of the start of the data. Checks that
// every tensor lies inside the file, is aligned and does not overlap another.
void place_tensors(const Cursor& cursor, std::vector<Tensor>& tensors, std::uint64_t alignment,
                   std::uint64_t size) {
  const auto data = round_up(cursor.place(), alignment);
  std::ranges::sort(tensors, {},
                    [](const Tensor& tensor) { return std::pair(tensor.offset, tensor.bytes); });
  std::uint64_t free = data;
  for (Tensor& tensor : tensors) {
    const auto fail = [&](const std::string& problem) {
      return cursor.error("tensor \"" + printable(tensor.name) + "\" " + problem);
    };
    if (tensor.offset % alignment != 0) {
      throw fail("begins at byte " + with_commas(tensor.offset) +
                 " of the data, not a multiple of the alignment, " + std::to_string(alignment));
    }
    const auto begin = checked_add(data, tensor.offset);
    const auto end = begin ? checked_add(*begin, tensor.bytes) : std::nullopt;
    if (!end || *end > size) {
      throw fail("ends beyond the end of the file, which has " + with_commas(size) + " bytes")
          .hint("the download may be incomplete");
    }
    if (*begin < free && tensor.bytes > 0) throw fail("lies inside another");
    free = std::max(free, *end);  // an empty tensor may lie anywhere
    tensor.offset = *begin;
  }
}

}  // namespace

bool is_gguf(std::string_view head) { return head.starts_with(kMagic); }

TensorTable read_gguf(const Source& source, const Budget& budget) {
  HeaderShare share(budget);
  Cursor cursor(source);
  cursor.skip(kMagic.size());
  const auto version = cursor.number<std::uint32_t>();
  if (version != 2 && version != 3) {
    const bool big = version >= 1 << 24;
    throw cursor.error(big ? "numbers are stored big-endian" : "version " + std::to_string(version))
        .hint("versions 2 and 3 are read, little-endian; convert it with llama.cpp's tools");
  }
  const auto count = cursor.number<std::uint64_t>();
  const auto keys = cursor.number<std::uint64_t>();
  constexpr std::uint64_t kOfEntry = 256;  // nodes of maps and sets, shapes
  constexpr std::uint64_t kLeastTensor = 8 + 4 + 4 + 8, kLeastKey = 8 + 4 + 1;
  // A header that claims more than the file can hold is refused before memory is reserved for it.
  if (count > source.identity.size / kLeastTensor || keys > source.identity.size / kLeastKey) {
    throw cursor.error("it says " + with_commas(count) + " tensors and " + with_commas(keys) +
                       " keys, more than a file of " + with_commas(source.identity.size) +
                       " bytes can have");
  }
  TensorTable table{.format = "gguf", .tensors = {}, .metadata = {}};
  std::uint64_t alignment = kDefaultAlignment;
  for (std::uint64_t i = 0; i < keys; ++i) {
    const std::string key = cursor.name("a key");
    const auto type = Value{cursor.number<std::uint32_t>()};
    auto value = read_value(cursor, type);
    if (key == "general.alignment") {
      const std::uint64_t stated = type == Value::kUint32 ? std::stoull(*value) : 0;
      if (!std::has_single_bit(stated) || stated > 1 << 30) {
        throw cursor.error("general.alignment must be a power of two");
      }
      alignment = stated;
    }
    if (!value) continue;
    share.add(kOfEntry + key.size() + value->size());
    table.metadata.insert_or_assign(key, std::move(*value));
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    Tensor tensor = read_tensor(cursor);
    // Twice, because a growing vector briefly needs both its old and its new memory.
    share.add(2 * sizeof(Tensor) + kOfEntry + tensor.name.size());
    table.tensors.push_back(std::move(tensor));
  }
  require_different_names(cursor, table.tensors);
  place_tensors(cursor, table.tensors, alignment, source.identity.size);
  return table;
}

}  // namespace evenkeel
