#include "array/row_extents.h"

#include <bit>
#include <cstring>
#include <functional>
#include <utility>

namespace evenkeel {
namespace {

std::uint16_t reversed(std::uint16_t v) { return __builtin_bswap16(v); }
std::uint32_t reversed(std::uint32_t v) { return __builtin_bswap32(v); }
std::uint64_t reversed(std::uint64_t v) { return __builtin_bswap64(v); }

template <class Word>
void swap_words(std::byte* data, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at + sizeof(Word) <= bytes; at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, data + at, sizeof word);
    word = reversed(word);
    std::memcpy(data + at, &word, sizeof word);
  }
}

}  // namespace

std::uint64_t column_place(const Layout& layout, std::uint64_t column) {
  // Stored: the second axis runs fastest among the columns. In memory: the last one does.
  std::uint64_t place = 0, weight = layout.row_bytes / layout.dtype.size;
  for (std::size_t axis = 1; axis < layout.shape.size(); ++axis) {
    weight /= layout.shape[axis];
    place += column % layout.shape[axis] * weight;
    column /= layout.shape[axis];
  }
  return place * layout.dtype.size;
}

Stretch stretch_at(const Layout& layout, std::uint32_t segment, std::uint64_t offset) {
  if (layout.stretches.empty()) {
    const Segment& file = layout.segments[segment];
    return {file.first_row, file.rows, file.data_offset, segment};
  }
  const auto place = [](const Stretch& stretch) {
    return std::pair(stretch.segment, stretch.offset);
  };
  return *std::prev(
      std::ranges::upper_bound(layout.stretches, std::pair(segment, offset), {}, place));
}

bool stored_in_order(const Layout& layout) {
  const auto later = [&](const Stretch& before, const Stretch& after) {
    return before.segment < after.segment ||
           (before.segment == after.segment &&
            before.offset + before.rows * layout.row_bytes <= after.offset);
  };
  return std::ranges::adjacent_find(layout.stretches, std::not_fn(later)) == layout.stretches.end();
}

void swap_bytes(std::byte* data, std::uint64_t bytes, std::uint32_t unit) {
  if (unit == 2) swap_words<std::uint16_t>(data, bytes);
  if (unit == 4) swap_words<std::uint32_t>(data, bytes);
  if (unit == 8) swap_words<std::uint64_t>(data, bytes);
}

}  // namespace evenkeel
