// A checked view of a flatbuffer, for the few Arrow tables that are read. Every position is
// compared with the size before it is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "evenkeel/error.h"
#include "format/token_part.h"

namespace evenkeel {

// Throws Error (kFormat) without a path, because only the caller knows the file.
class FlatTable {
 public:
  static FlatTable root(std::string_view bytes) { return {bytes, load<std::uint32_t>(bytes, 0)}; }

  template <class T>
  T number(int field, T otherwise) const {
    const auto place = place_of(field);
    return place ? load<T>(bytes_, *place) : otherwise;
  }
  std::optional<FlatTable> table(int field) const {
    const auto place = place_of(field);
    if (!place) return std::nullopt;
    return FlatTable(bytes_, *place + load<std::uint32_t>(bytes_, *place));
  }
  std::string_view text(int field) const {
    const Items items = list(field, 1);
    return bytes_.substr(items.begin, items.count);
  }

  // The size of the whole flatbuffer.
  std::uint64_t bytes() const { return bytes_.size(); }

  struct Items {
    std::uint64_t begin = 0, count = 0;
  };
  // The position and number of a vector's items, each of `item` bytes.
  Items list(int field, std::uint64_t item) const {
    const auto place = place_of(field);
    if (!place) return {};
    const std::uint64_t begin = *place + load<std::uint32_t>(bytes_, *place);
    const std::uint64_t count = load<std::uint32_t>(bytes_, begin);
    if (count > (bytes_.size() - begin - 4) / item) throw outside();
    return {begin + 4, count};
  }
  template <class T>
  T item(std::uint64_t place) const {
    return load<T>(bytes_, place);
  }
  // The table that an item of a vector of tables refers to.
  FlatTable table_at(std::uint64_t place) const {
    return {bytes_, place + load<std::uint32_t>(bytes_, place)};
  }

 private:
  FlatTable(std::string_view bytes, std::uint64_t place) : bytes_(bytes), place_(place) {
    const std::int64_t back = load<std::int32_t>(bytes, place);
    const std::int64_t at = static_cast<std::int64_t>(place) - back;
    if (at < 0) throw outside();
    fields_ = static_cast<std::uint64_t>(at);
    fields_bytes_ = load<std::uint16_t>(bytes, fields_);
  }

  static Error outside() {
    return Error(ErrorKind::kFormat, "open", "bad Arrow metadata: a place outside it");
  }
  template <class T>
  static T load(std::string_view bytes, std::uint64_t place) {
    if (place > bytes.size() || sizeof(T) > bytes.size() - place) throw outside();
    return load_number<T>(bytes.data() + place);
  }
  std::optional<std::uint64_t> place_of(int field) const {
    const std::uint64_t entry = 4 + 2 * static_cast<std::uint64_t>(field);
    if (entry + 2 > fields_bytes_) return std::nullopt;
    const std::uint64_t offset = load<std::uint16_t>(bytes_, fields_ + entry);
    if (offset == 0) return std::nullopt;
    return place_ + offset;
  }

  std::string_view bytes_;
  std::uint64_t place_ = 0, fields_ = 0, fields_bytes_ = 0;
};

}  // namespace evenkeel
