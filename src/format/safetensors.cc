// Safetensors: a length, a JSON header, and the bytes of tensors without holes. See
// docs/formats.md.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/checked.h"
#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "format/part.h"
#include "format/tensor_table.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // as the reference implementation has it
constexpr std::uint64_t kMostIndexBytes = 1 << 30;
// Of JSON in memory: its text, and what is taken from it. A tensor in 50 bytes of text becomes 500
// bytes of names, shapes and places; an index becomes a tree first.
constexpr std::uint64_t kTimesHeader = 16, kTimesIndex = 32;
constexpr std::size_t kMostAxes = 64;  // of NumPy and torch

constexpr std::string_view kMetadata = "__metadata__";

Error header_error(const std::string& path, std::string problem) {
  return Error(ErrorKind::kFormat, "open", "bad safetensors header: " + std::move(problem))
      .in(path);
}

struct Type {
  std::string_view name;
  unsigned bits;
  std::optional<DType> dtype;
};

const Type* find_type(std::string_view name) {
  using enum DTypeKind;
  static constexpr auto of = [](DTypeKind kind, std::uint32_t size) { return DType{kind, size}; };
  static const Type types[] = {
      {"BOOL", 8, of(kBool, 1)},    {"U8", 8, of(kUint, 1)},
      {"I8", 8, of(kInt, 1)},       {"I16", 16, of(kInt, 2)},
      {"U16", 16, of(kUint, 2)},    {"I32", 32, of(kInt, 4)},
      {"U32", 32, of(kUint, 4)},    {"I64", 64, of(kInt, 8)},
      {"U64", 64, of(kUint, 8)},    {"F16", 16, of(kFloat, 2)},
      {"BF16", 16, of(kBfloat, 2)}, {"F32", 32, of(kFloat, 4)},
      {"F64", 64, of(kFloat, 8)},   {"C64", 64, of(kComplex, 8)},
      {"F8_E5M2", 8, {}},           {"F8_E4M3", 8, {}},
      {"F8_E8M0", 8, {}},           {"F8_E4M3FNUZ", 8, {}},
      {"F8_E5M2FNUZ", 8, {}},       {"F4", 4, {}},
      {"F6_E2M3", 6, {}},           {"F6_E3M2", 6, {}},
  };
  const auto* found = std::ranges::find(types, name, &Type::name);
  return found == std::end(types) ? nullptr : found;
}

// One tensor as the header states it.
struct Entry {
  std::string name;
  std::optional<std::string> type;
  std::optional<std::vector<std::uint64_t>> shape, offsets;
};

// Takes the header's JSON event by event: a document of 100 MB never becomes a tree. Values of keys
// that it does not know are passed over, as the reference implementation does.
class HeaderEvents {
 public:
  using Json = nlohmann::json;

  explicit HeaderEvents(const std::string& path) : path_(path) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  bool key(std::string& name) {
    if (skipped_ > 0) return true;
    if (depth_ == 1) {
      in_metadata_ = name == kMetadata;
      if (!names_.insert(name).second) throw error("two entries are called " + quoted(name));
      if (!in_metadata_) entries.push_back({name, {}, {}, {}});
    } else if (!in_metadata_) {
      Entry& entry = entries.back();
      if ((name == "dtype" && entry.type) || (name == "shape" && entry.shape) ||
          (name == "data_offsets" && entry.offsets)) {
        throw error("tensor " + quoted(entry.name) + " has two values of " + quoted(name));
      }
    } else if (metadata.contains(name)) {
      throw error("two values of " + quoted(name) + " in " + std::string(kMetadata));
    }
    key_ = name;
    return true;
  }

  bool start_object(std::size_t) {
    if (skipped_ > 0) return skip_deeper();
    if (depth_ == 2) {
      if (in_metadata_ || is_field(key_)) throw unexpected("an object");
      return skip_deeper();
    }
    ++depth_;
    return true;
  }
  bool end_object() {
    if (skipped_ > 0) return skip_up();
    if (depth_ == 2 && !in_metadata_) require_complete(entries.back());
    --depth_;
    return true;
  }
  bool start_array(std::size_t) {
    if (skipped_ > 0) return skip_deeper();
    if (depth_ != 2 || in_metadata_) throw unexpected("a list");
    if (numbers_) throw unexpected("a list within a list");
    if (key_ == "shape") {
      numbers_ = &entries.back().shape.emplace();
    } else if (key_ == "data_offsets") {
      numbers_ = &entries.back().offsets.emplace();
    } else if (is_field(key_)) {
      throw unexpected("a list");
    } else {
      return skip_deeper();
    }
    return true;
  }
  bool end_array() {
    if (skipped_ > 0) return skip_up();
    numbers_ = nullptr;
    return true;
  }

  bool number_unsigned(std::uint64_t value) {
    if (numbers_ && skipped_ == 0) {
      const std::size_t most = key_ == "shape" ? kMostAxes : 2;
      if (numbers_->size() == most) {
        throw error("tensor " + quoted(entries.back().name) + " has more than " +
                    std::to_string(most) + (most == 2 ? " data_offsets" : " axes"));
      }
      numbers_->push_back(value);
      return true;
    }
    return other("a number");
  }
  bool string(std::string& text) {
    if (skipped_ > 0) return true;
    if (depth_ == 2 && in_metadata_) {
      metadata.emplace(key_, text);
    } else if (depth_ == 2 && key_ == "dtype" && !numbers_) {
      entries.back().type = text;
    } else {
      return other("a text");
    }
    return true;
  }
  bool number_integer(std::int64_t) { return other("a negative number"); }
  bool number_float(double, const std::string&) {
    return other("a number with a fraction, or larger than 64 bits");
  }
  bool null() { return other("null"); }
  bool boolean(bool) { return other("a truth value"); }
  bool binary(std::vector<std::uint8_t>&) { return other("bytes"); }
  bool parse_error(std::size_t position, const std::string&, const std::exception& why) {
    // "[json.exception.parse_error.101] parse error at line 1, column 3: syntax error ..."
    std::string_view text = why.what();
    const std::size_t at = text.find(": ");
    if (at != text.npos) text.remove_prefix(at + 2);
    throw header_error(path_, "not valid JSON: " + printable(text)).at(kLengthBytes + position);
  }

 private:
  static bool is_field(std::string_view key) {
    return key == "dtype" || key == "shape" || key == "data_offsets";
  }
  static std::string quoted(std::string_view name) { return '"' + printable(name) + '"'; }
  bool skip_deeper() {
    ++skipped_;
    return true;
  }
  bool skip_up() {
    --skipped_;
    return true;
  }
  Error error(std::string problem) const { return header_error(path_, std::move(problem)); }
  Error unexpected(const std::string& found) const {
    if (depth_ == 0) return error("it is " + found + ", not an object of tensors");
    if (depth_ == 1) return error("the value of " + quoted(key_) + " is " + found);
    const std::string owner = in_metadata_ ? std::string(kMetadata) : entries.back().name;
    return error("the value of " + quoted(key_) + " of " + quoted(owner) + " is " + found);
  }
  void require_complete(const Entry& entry) const {
    const auto missing = [&](const char* what) {
      return error("tensor " + quoted(entry.name) + " has " + what);
    };
    if (!entry.type) throw missing("no dtype");
    if (!entry.shape) throw missing("no shape");
    if (!entry.offsets) throw missing("no data_offsets");
    if (entry.offsets->size() < 2) {
      throw missing(entry.offsets->empty() ? "0 data_offsets, not 2" : "1 data_offsets, not 2");
    }
  }
  // A value that is in place only under a key that is passed over.
  bool other(const char* found) {
    if (skipped_ > 0) return true;
    if (depth_ < 2 || in_metadata_ || numbers_ || is_field(key_)) throw unexpected(found);
    return true;
  }

  const std::string& path_;
  std::set<std::string, std::less<>> names_;
  std::string key_;
  int depth_ = 0;  // of objects that matter: 1 in the header, 2 in a tensor or the metadata
  std::size_t skipped_ = 0;  // objects and lists that are being passed over
  bool in_metadata_ = false;
  std::vector<std::uint64_t>* numbers_ = nullptr;  // the list that is being read
};

std::string tensor_name(const Entry& entry) { return "tensor \"" + printable(entry.name) + '"'; }

// The entry, which is complete, as a tensor of a file whose tensors begin at `data`.
Tensor checked_tensor(const std::string& path, const Entry& entry, std::uint64_t data,
                      std::uint64_t data_bytes) {
  const auto fail = [&](const std::string& problem) {
    return header_error(path, tensor_name(entry) + problem);
  };
  const std::uint64_t begin = (*entry.offsets)[0], end = (*entry.offsets)[1];
  if (begin > end || end > data_bytes) {
    throw fail(" lies at bytes " + with_commas(begin) + " to " + with_commas(end) +
               " of the data, which has " + with_commas(data_bytes))
        .hint("the download may be incomplete");
  }
  std::optional<std::uint64_t> numbers = 1;
  for (const std::uint64_t length : *entry.shape) {
    numbers = numbers ? checked_mul(*numbers, length) : numbers;
  }
  if (std::ranges::find(*entry.shape, 0u) != entry.shape->end()) numbers = 0;
  Tensor tensor{entry.name, *entry.type, {}, *entry.shape, 0, data + begin, end - begin};
  const Type* type = find_type(*entry.type);
  if (!type) return tensor;  // of a newer version of the format: its bytes can be read
  tensor.dtype = type->dtype;
  const auto bits = numbers ? checked_mul(*numbers, type->bits) : std::nullopt;
  if (!bits) throw fail(" has shape " + shape_text(*entry.shape) + ", larger than any file");
  if (*bits % 8 != 0 || *bits / 8 != tensor.bytes) {
    throw fail(" has " + with_commas(tensor.bytes) + " bytes, but shape " +
               shape_text(*entry.shape) + " of " + printable(*entry.type) + " takes " +
               with_commas((*bits + 7) / 8));
  }
  return tensor;
}

// Tensors follow one another from the first byte of the data to the last.
void require_no_holes(const std::string& path, const std::vector<Tensor>& tensors,
                      std::uint64_t data, std::uint64_t size) {
  std::uint64_t expected = data;
  for (const Tensor& tensor : tensors) {
    if (tensor.offset != expected) {
      throw header_error(path,
                         "tensor \"" + printable(tensor.name) + "\" begins at byte " +
                             with_commas(tensor.offset - data) + " of the data, " +
                             (tensor.offset > expected ? "after a hole: " : "inside another: ") +
                             with_commas(expected - data) + " was expected");
    }
    expected += tensor.bytes;
  }
  if (expected != size) {
    throw header_error(path, "the tensors end at byte " + with_commas(expected) +
                                 ", but the file has " + with_commas(size))
        .at(expected);
  }
}

std::uint64_t header_length(std::string_view head) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(head[i]);
  }
  return length;
}

}  // namespace

bool is_safetensors(std::string_view head, std::uint64_t size) {
  if (head.size() <= kLengthBytes || head[kLengthBytes] != '{') return false;
  const std::uint64_t length = header_length(head);
  return length >= 2 && length <= kMostHeaderBytes && length <= size - kLengthBytes;
}

TensorTable read_safetensors(const Source& source, const Budget& budget) {
  const std::uint64_t size = source.identity.size;
  const std::string head = source.read(0, kLengthBytes);
  if (head.size() < kLengthBytes) {
    throw header_error(source.path, "the file has " + with_commas(size) +
                                        " bytes, and the length " + "of the header alone takes 8")
        .hint("the download may be incomplete");
  }
  const std::uint64_t length = header_length(head);
  if (length > kMostHeaderBytes) {
    throw header_error(source.path, "a length of " + with_commas(length) +
                                        " bytes is more than the format allows, " +
                                        with_commas(kMostHeaderBytes))
        .at(0)
        .hint("this may not be a safetensors file");
  }
  if (length > size - kLengthBytes) {
    throw header_error(source.path, "it says " + with_commas(length) + " bytes, but only " +
                                        with_commas(size - kLengthBytes) + " follow")
        .at(0)
        .hint("the download may be incomplete");
  }
  const Reservation share = budget.reserve(kTimesHeader * length, "header of weights");
  const std::string text = source.read(kLengthBytes, length);
  if (!text.starts_with('{')) {
    throw header_error(source.path, "it does not begin with {").at(kLengthBytes);
  }
  HeaderEvents events(source.path);
  nlohmann::json::sax_parse(text, &events);
  TensorTable table{.format = "safetensors", .tensors = {}, .metadata = std::move(events.metadata)};
  const std::uint64_t data = kLengthBytes + length;
  for (const Entry& entry : events.entries) {
    table.tensors.push_back(checked_tensor(source.path, entry, data, size - data));
  }
  std::ranges::sort(table.tensors, {}, [](const Tensor& tensor) {
    return std::pair(tensor.offset, tensor.bytes);  // empty ones before what begins there
  });
  require_no_holes(source.path, table.tensors, data, size);
  return table;
}

SafetensorsIndex read_safetensors_index(const std::string& path, const Budget& budget) {
  const auto fail = [&](const std::string& problem) {
    return Error(ErrorKind::kFormat, "open", "bad index of safetensors: " + problem).in(path);
  };
  const Source source = open_source(path);
  if (source.identity.size > kMostIndexBytes) {
    throw fail("it has " + with_commas(source.identity.size) + " bytes").hint("is this the index?");
  }
  const Reservation share = budget.reserve(kTimesIndex * source.identity.size, "index of weights");
  const auto json =
      nlohmann::json::parse(source.read(0, source.identity.size), nullptr, /*exceptions=*/false);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    throw fail("there is no object \"weight_map\" in it");
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "" : path.substr(0, slash + 1);
  SafetensorsIndex index;
  std::map<std::string, std::size_t> numbers;
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) throw fail("the file of tensor \"" + printable(name) + "\" is no text");
    numbers.emplace(file.get<std::string>(), 0);
  }
  for (auto& [file, number] : numbers) {
    if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos ||
        file.find('\0') != file.npos) {
      throw fail("\"" + printable(file) + "\" is not the name of a file beside it");
    }
    number = index.files.size();
    index.files.push_back(folder + file);
  }
  for (const auto& [name, file] : map->items()) {
    index.tensors.emplace(name, numbers.at(file.get<std::string>()));
  }
  return index;
}

}  // namespace evenkeel
