// Safetensors: a length, a JSON header, and the bytes of the tensors without holes. See
// docs/formats.md.
#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "base/checked.h"
#include "base/json.h"
#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "format/part.h"
#include "format/tensor_table.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMostSafetensorsHeader = 100'000'000;  // as in the reference implementation
constexpr std::uint64_t kMostIndexBytes = 1 << 30;
// How much memory JSON takes, as a multiple of its length: the text, and the entries made from it.
// A tensor in 50 bytes of text becomes 500 bytes of names, shapes and offsets.
constexpr std::uint64_t kTimesHeader = 16, kTimesIndex = 16;
constexpr std::size_t kMostTensorAxes = 64;  // the limit of NumPy and torch

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

// Handles the header's JSON event by event, so that a document of 100 MB never becomes a tree.
// Values of unknown keys are skipped, as in the reference implementation.
class HeaderEvents final : public JsonEvents {
 public:
  explicit HeaderEvents(const std::string& path) : path_(path) {}

  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;

  void key(std::string_view name) override {
    if (skipped_ > 0) return;
    if (depth_ == 1) {
      in_metadata_ = name == kMetadata;
      if (!names_.emplace(name).second) throw error("two entries are called " + quoted(name));
      if (!in_metadata_) entries.push_back({std::string(name), {}, {}, {}});
    } else if (!in_metadata_) {
      Entry& entry = entries.back();
      if ((name == "dtype" && entry.type) || (name == "shape" && entry.shape) ||
          (name == "data_offsets" && entry.offsets)) {
        throw error("tensor " + quoted(entry.name) + " has two values of " + quoted(name));
      }
    } else if (metadata.contains(std::string(name))) {
      throw error("two values of " + quoted(name) + " in " + std::string(kMetadata));
    }
    key_ = name;
  }

  void begin_object() override {
    if (skipped_ > 0 || depth_ == 2) {
      if (skipped_ == 0 && (in_metadata_ || is_field(key_))) throw unexpected("an object");
      ++skipped_;
    } else {
      ++depth_;
    }
  }
  void end_object() override {
    if (skipped_ > 0) {
      --skipped_;
      return;
    }
    if (depth_ == 2 && !in_metadata_) require_complete(entries.back());
    --depth_;
  }
  void begin_list() override {
    if (skipped_ == 0) {
      if (depth_ != 2 || in_metadata_) throw unexpected("a list");
      if (numbers_) throw unexpected("a list within a list");
      if (key_ == "shape") {
        numbers_ = &entries.back().shape.emplace();
        return;
      }
      if (key_ == "data_offsets") {
        numbers_ = &entries.back().offsets.emplace();
        return;
      }
      if (is_field(key_)) throw unexpected("a list");
    }
    ++skipped_;
  }
  void end_list() override {
    if (skipped_ > 0) {
      --skipped_;
    } else {
      numbers_ = nullptr;
    }
  }

  void whole(std::uint64_t value) override {
    if (!numbers_ || skipped_ > 0) return other("a number");
    const std::size_t most = key_ == "shape" ? kMostTensorAxes : 2;
    if (numbers_->size() == most) {
      throw error("tensor " + quoted(entries.back().name) + " has more than " +
                  std::to_string(most) + (most == 2 ? " data_offsets" : " axes"));
    }
    numbers_->push_back(value);
  }
  void text(std::string_view value) override {
    if (skipped_ > 0) return;
    if (depth_ == 2 && in_metadata_) {
      metadata.emplace(key_, value);
    } else if (depth_ == 2 && key_ == "dtype" && !numbers_) {
      entries.back().type = value;
    } else {
      other("a string");
    }
  }
  // A value that is allowed only under a key that is skipped.
  void other(const char* kind) override {
    if (skipped_ > 0) return;
    if (depth_ < 2 || in_metadata_ || numbers_ || is_field(key_)) throw unexpected(kind);
  }
  void syntax_error(std::size_t position, std::string_view why) override {
    throw header_error(path_, "not valid JSON: " + printable(why)).at(kLengthBytes + position);
  }

 private:
  static bool is_field(std::string_view key) {
    return key == "dtype" || key == "shape" || key == "data_offsets";
  }
  static std::string quoted(std::string_view name) { return '"' + printable(name) + '"'; }
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
  const std::string& path_;
  std::set<std::string, std::less<>> names_;
  std::string key_;
  int depth_ = 0;  // of objects that matter: 1 in the header, 2 in a tensor or the metadata
  std::size_t skipped_ = 0;  // open objects and lists that are being skipped
  bool in_metadata_ = false;
  std::vector<std::uint64_t>* numbers_ = nullptr;  // the list that is being read
};

std::string tensor_name(const Entry& entry) { return "tensor \"" + printable(entry.name) + '"'; }

// Makes a tensor of a complete entry. The tensors of the file begin at `data`.
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
  if (!type) return tensor;  // from a newer version of the format: its bytes can still be read
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

// Checks that tensors follow one another from the first byte of the data to the last.
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

Error index_error(const std::string& path, const std::string& problem) {
  return Error(ErrorKind::kFormat, "open", "bad index of safetensors: " + problem).in(path);
}

// Collects the fields of "weight_map", which are strings, and skips everything else.
class IndexEvents final : public JsonEvents {
 public:
  explicit IndexEvents(const std::string& path) : path_(path) {}

  std::optional<std::map<std::string, std::string>> file_of_tensor;

  void key(std::string_view name) override {
    if (level_ <= 2) key_ = name;
  }
  void begin_object() override {
    if (level_ == 1 && key_ == "weight_map") {
      file_of_tensor.emplace();
      in_map_ = true;
    } else {
      other("an object");
    }
    ++level_;
  }
  void end_object() override { leave(); }
  void begin_list() override {
    other("a list");
    ++level_;
  }
  void end_list() override { leave(); }
  void text(std::string_view value) override {
    if (in_map_ && level_ == 2) file_of_tensor->insert_or_assign(key_, value);
  }
  void whole(std::uint64_t) override { other("a number"); }
  void other(const char* kind) override {
    if (!in_map_ || level_ != 2) return;
    throw index_error(
        path_, "the file of tensor \"" + printable(key_) + "\" is " + kind + ", not a string");
  }
  void syntax_error(std::size_t position, std::string_view why) override {
    throw index_error(path_, "not valid JSON: " + printable(why)).at(position);
  }

 private:
  void leave() {
    if (--level_ == 1) in_map_ = false;
  }

  const std::string& path_;
  std::string key_;        // the last on the first two levels
  std::size_t level_ = 0;  // of objects and lists
  bool in_map_ = false;
};

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
  return length >= 2 && length <= kMostSafetensorsHeader && length <= size - kLengthBytes;
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
  if (length > kMostSafetensorsHeader) {
    throw header_error(source.path, "a length of " + with_commas(length) +
                                        " bytes is more than the format allows, " +
                                        with_commas(kMostSafetensorsHeader))
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
  source.drop(0, kLengthBytes + length);
  if (!text.starts_with('{')) {
    throw header_error(source.path, "it does not begin with {").at(kLengthBytes);
  }
  HeaderEvents events(source.path);
  parse_json(text, events);
  TensorTable table{.format = "safetensors", .tensors = {}, .metadata = std::move(events.metadata)};
  const std::uint64_t data = kLengthBytes + length;
  for (const Entry& entry : events.entries) {
    table.tensors.push_back(checked_tensor(source.path, entry, data, size - data));
  }
  std::ranges::sort(table.tensors, {}, [](const Tensor& tensor) {
    return std::pair(tensor.offset, tensor.bytes);  // empty tensors first
  });
  require_no_holes(source.path, table.tensors, data, size);
  return table;
}

SafetensorsIndex read_safetensors_index(const std::string& path, const Budget& budget) {
  const Source source = open_source(path);
  if (source.identity.size > kMostIndexBytes) {
    throw index_error(path, "it has " + with_commas(source.identity.size) + " bytes")
        .hint("this may not be the index");
  }
  const Reservation share = budget.reserve(kTimesIndex * source.identity.size, "index of weights");
  IndexEvents events(path);
  parse_json(source.read(0, source.identity.size), events);
  if (!events.file_of_tensor) {
    throw index_error(path, "it has no object \"weight_map\"");
  }
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "" : path.substr(0, slash + 1);
  SafetensorsIndex index;
  std::map<std::string, std::size_t> numbers;
  for (const auto& [name, file] : *events.file_of_tensor) numbers.emplace(file, 0);
  for (auto& [file, number] : numbers) {
    if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos ||
        file.find('\0') != file.npos) {
      throw index_error(path, "\"" + printable(file) + "\" is not the name of a file beside it");
    }
    number = index.files.size();
    index.files.push_back(folder + file);
  }
  for (const auto& [name, file] : *events.file_of_tensor) {
    index.tensors.emplace(name, numbers.at(file));
  }
  return index;
}

}  // namespace evenkeel
