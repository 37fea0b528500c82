#include "loader/ragged.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/checked.h"
#include "base/sys.h"
#include "base/visible.h"
#include "evenkeel/error.h"
#include "loader/data.h"

namespace evenkeel {
namespace {

Error wrong_ragged(const Layout& layout, const std::string& what) {
  return Error(ErrorKind::kInvalid, "ragged", what).in(layout.paths.front());
}

void require_integers(const Layout& layout, const std::string& what) {
  const bool whole = layout.dtype.kind == DTypeKind::kInt || layout.dtype.kind == DTypeKind::kUint;
  if (layout.shape.size() == 1 && whole) return;
  throw wrong_ragged(layout, what + " must be whole numbers on one axis; the array has " +
                                 std::to_string(layout.shape.size()) +
                                 (layout.shape.size() == 1 ? " axis of " : " axes of ") +
                                 layout.dtype.name());
}

std::uint64_t read_offset(Array::Impl& offsets, std::uint64_t row) {
  std::array<std::byte, 8> data;
  offsets.crops({&row, 1}, 1, data.data());
  return number_at(offsets.layout.dtype, data.data());
}

template <class Item, class Index>
void scatter(const std::byte* values, const std::byte* indices, std::uint64_t count,
             std::byte* out) {
  for (std::uint64_t i = 0; i < count; ++i) {
    Index index;
    std::memcpy(&index, indices + i * sizeof index, sizeof index);
    std::memcpy(out + static_cast<std::uint64_t>(index) * sizeof(Item), values + i * sizeof(Item),
                sizeof(Item));
  }
}

template <class Item>
void scatter(DType index, const std::byte* values, const std::byte* indices, std::uint64_t count,
             std::byte* out) {
  switch (index.size) {
    case 1:
      return scatter<Item, std::uint8_t>(values, indices, count, out);
    case 2:
      return scatter<Item, std::uint16_t>(values, indices, count, out);
    case 4:
      return scatter<Item, std::uint32_t>(values, indices, count, out);
    default:
      return scatter<Item, std::uint64_t>(values, indices, count, out);
  }
}

// False if some may not be below the limit. For numbers of 32 and 64 bits, where compilers
// vectorize it: a number that is negative or too large sets the sign bit of `signs`.
template <class T>
bool all_below(const std::byte* numbers, std::uint64_t count, std::uint64_t limit) {
  using Signed = std::make_signed_t<T>;
  if (limit > static_cast<std::uint64_t>(std::numeric_limits<Signed>::max())) return false;
  const T last = static_cast<T>(limit - 1);
  T signs = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    T number;
    std::memcpy(&number, numbers + i * sizeof number, sizeof number);
    signs |= number | (last - number);
  }
  return static_cast<Signed>(signs) >= 0;
}

bool all_below(DType dtype, const std::byte* numbers, std::uint64_t count, std::uint64_t limit) {
  if (dtype.size == 4) return all_below<std::uint32_t>(numbers, count, limit);
  return dtype.size == 8 && all_below<std::uint64_t>(numbers, count, limit);
}

// The size of this many batches must fit 64 bits.
constexpr std::uint64_t kManyBatches = 1024;

struct Item16 {
  std::array<std::byte, 16> bytes;
};

}  // namespace

RaggedField::RaggedField(ArrayPointer offsets, std::vector<ArrayPointer> values,
                         std::uint64_t columns, bool dense)
    : arrays_{std::move(offsets), std::move(values)}, columns_(columns), dense_(dense) {
  const Layout& bounds = arrays_.offsets->layout;
  require_integers(bounds, "offsets");
  if (bounds.rows < 2 || rows() == 0) {
    throw wrong_ragged(
        bounds, "offsets must be at least two numbers; there are " + with_commas(bounds.rows));
  }
  const Layout& first = arrays_.values.front()->layout;
  if (arrays_.values.size() > 1) {
    const Layout& indices = arrays_.values[1]->layout;
    require_integers(indices, "indices");
    if (indices.rows != first.rows) {
      throw wrong_ragged(indices, "there are " + with_commas(indices.rows) + " indices and " +
                                      with_commas(first.rows) + " values in " +
                                      visible(first.paths.front()));
    }
    if (first.shape.size() != 1) throw wrong_ragged(first, "values must have one axis");
    if (columns_ == 0) throw wrong_ragged(indices, "a matrix must have at least one column");
    if (first.dtype.size > 8 && first.dtype.size != 16) {
      throw wrong_ragged(first, "values of " + first.dtype.name() + " cannot form a sparse matrix");
    }
  }
  if (!bounds.offset_batches.empty()) {  // the offsets of each batch are checked when they are read
    const OffsetBatch& last = bounds.offset_batches.back();
    if (last.first_value + last.values != first.rows) {
      throw wrong_ragged(bounds, "the offsets are for " +
                                     with_commas(last.first_value + last.values) +
                                     " values, but there are " + with_commas(first.rows) + " in " +
                                     visible(first.paths.front()))
          .hint("take values and offsets from the same column of the same files");
    }
    arrays_.mean = first.rows / rows() + 1;
    return;
  }
  const std::uint64_t begin = read_offset(*arrays_.offsets, 0),
                      end = read_offset(*arrays_.offsets, rows());
  if (begin > end || end > first.rows) {
    throw wrong_ragged(bounds, "offsets go from " + with_commas(begin) + " to " + with_commas(end) +
                                   ", but there are " + with_commas(first.rows) + " values in " +
                                   visible(first.paths.front()))
        .hint(
            "offsets of n rows are n + 1 numbers that never decrease, up to the number of values");
  }
  arrays_.mean = (end - begin) / rows() + 1;
}

std::string RaggedField::fingerprint() const {
  std::string text = fingerprint_of(arrays_.offsets->layout, "offsets");
  for (const ArrayPointer& values : arrays_.values) {
    text += " & " + fingerprint_of(values->layout, "values");
  }
  return text + (columns_ > 0 ? " columns=" + std::to_string(columns_) : "");
}

// The mean of a batch plus a quarter, and a few rows more.
std::uint64_t RaggedField::usual_values(std::uint64_t batch_size) const {
  const std::uint64_t all = arrays_.values.front()->layout.rows;
  return std::min(all, checked_mul(arrays_.mean, batch_size + batch_size / 4 + 4).value_or(all));
}

std::vector<RaggedField::Output> RaggedField::outputs(std::uint64_t batch_size) const {
  const DType dtype = arrays_.values.front()->layout.dtype;
  if (dense_) {
    const auto row = checked_mul(columns_, dtype.size);
    const auto bytes = row ? checked_mul(*row, batch_size) : std::nullopt;
    if (!bytes || !checked_mul(*bytes, kManyBatches)) {
      throw wrong_ragged(arrays_.values.front()->layout, "batches of " + with_commas(batch_size) +
                                                             " rows of " + with_commas(columns_) +
                                                             " columns of " + dtype.name() +
                                                             " are too large to be dense")
          .hint("use the sparse form, or a smaller batch_size");
    }
    return {{dtype, *row, *bytes}};
  }
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < arrays_.values.size(); ++i) {
    outputs.push_back(
        {arrays_.values[i]->layout.dtype, 0, usual_values(batch_size) * item_bytes(i)});
  }
  outputs.push_back({DType::of<std::int64_t>(), 0, (batch_size + 1) * sizeof(std::int64_t)});
  return outputs;
}

std::uint64_t RaggedField::slot_bytes(std::uint64_t batch_size) const {
  std::uint64_t bytes =
      batch_size * (2 * arrays_.offsets->layout.row_bytes + 3 * sizeof(std::uint64_t) +
                    arrays_.values.size() * sizeof(JobRun));
  if (dense_) {
    for (std::size_t i = 0; i < arrays_.values.size(); ++i) {
      bytes += usual_values(batch_size) * item_bytes(i);
    }
  }
  return bytes;
}

void RaggedField::add_slot(const Budget& budget, std::uint64_t batch_size) {
  batch_size_ = batch_size;
  Slot slot;
  slot.budget = budget;
  slot.lists_share = budget.reserve(
      batch_size * (3 * sizeof(std::uint64_t) + arrays_.values.size() * sizeof(JobRun)),
      "a batch's rows");
  slot.offsets =
      PageBuffer(budget, batch_size * 2 * arrays_.offsets->layout.row_bytes, "offsets of rows");
  if (!arrays_.offsets->layout.offset_batches.empty()) slot.places.reserve(batch_size);
  slot.begins.reserve(batch_size);
  slot.ends.reserve(batch_size);
  for (std::size_t i = 0; i < arrays_.values.size(); ++i) {
    slot.values[i].runs.reserve(batch_size);
    if (!dense_) continue;
    slot.values[i].staging =
        PageBuffer(budget, usual_values(batch_size) * item_bytes(i), "values of rows");
  }
  slots_.push_back(std::move(slot));
}

void RaggedField::find_bounds(Slot& slot, std::span<const std::uint64_t> rows) const {
  const Layout& layout = arrays_.offsets->layout;
  const std::uint64_t size = layout.row_bytes;
  std::uint64_t largest = 1;
  for (std::size_t i = 0; i < arrays_.values.size(); ++i)
    largest = std::max(largest, item_bytes(i));
  slot.begins.clear();
  slot.ends.clear();
  slot.total = 0;
  const bool in_batches = !layout.offset_batches.empty();
  OffsetBatch batch = arrays_.batch_of(0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::byte* const pair = slot.offsets.data() + 2 * i * size;
    if (in_batches) batch = arrays_.batch_of(rows[i]);
    std::uint64_t begin = number_at(layout.dtype, pair);
    std::uint64_t end = number_at(layout.dtype, pair + size);
    require_bounds(layout, rows[i], begin, end, batch.values);
    begin += batch.first_value;
    end += batch.first_value;
    const auto total = checked_add(slot.total, end - begin);
    if (!total || !checked_mul(*total, largest)) {
      throw Error(ErrorKind::kFormat, "ragged",
                  "a batch has too many values: row " + with_commas(rows[i]) + " has " +
                      with_commas(end - begin) + ", the rows before it " + with_commas(slot.total))
          .in(layout.paths.front())
          .hint("use a smaller batch_size");
    }
    slot.begins.push_back(begin);
    slot.ends.push_back(end);
    slot.total = *total;
  }
  slot.known = true;
}

void RaggedField::begin_values(Slot& slot, std::size_t which, std::byte* out) const {
  Values& values = slot.values[which];
  values.own.reset();
  values.data = dense_ ? values.staging.data() : out;
  values.room = usual_values(batch_size_) * item_bytes(which);
}

// Keeps the values that are already there.
void RaggedField::make_room(Slot& slot, std::size_t which, std::uint64_t bytes) const {
  Values& values = slot.values[which];
  if (bytes <= values.room) return;
  const std::string_view what = "a batch of long rows";
  auto larger = std::make_shared<ExtraMemory>();
  // A size that would round up past 2^64 is reserved unrounded, and therefore refused.
  larger->share = slot.budget.reserve(std::max(bytes, round_up(bytes, sys::page_size())), what);
  larger->pages = Pages(bytes, what);
  const std::uint64_t used = slot.taken * item_bytes(which);
  if (used > 0) std::memcpy(larger->pages.data(), values.data, used);
  values.data = larger->pages.data();
  values.room = bytes;
  values.own = std::move(larger);
}

void RaggedField::begin(std::size_t slot_number, std::span<std::byte* const> out) {
  Slot& slot = slots_[slot_number];
  slot.begins.clear();
  slot.ends.clear();
  slot.total = slot.taken = 0;
  for (std::size_t i = 0; i < arrays_.values.size(); ++i) {
    begin_values(slot, i, out[dense_ ? 0 : i]);
  }
}

void RaggedField::take(std::size_t slot_number, RaggedWindowReader& windows, std::uint64_t first,
                       std::span<std::uint64_t> places) {
  Slot& slot = slots_[slot_number];
  const std::size_t arrays = arrays_.values.size();
  windows.take(first, places, [&](std::size_t count, const auto& row_at) {
    const std::size_t before = slot.ends.size();
    for (std::size_t i = 0; i < count; ++i) {
      slot.begins.push_back(slot.total);
      slot.total += row_at(i).count;
      slot.ends.push_back(slot.total);
    }
    for (std::size_t i = 0; i < arrays; ++i) make_room(slot, i, slot.total * item_bytes(i));
    for (std::size_t i = 0; i < count; ++i) {
      const RaggedRow row = row_at(i);
      for (std::size_t which = 0; which < arrays; ++which) {
        const std::uint64_t item = item_bytes(which);
        std::memcpy(slot.values[which].data + slot.begins[before + i] * item, row.data[which],
                    row.count * item);
      }
    }
    slot.taken = slot.total;
  });
}

Job& RaggedField::job(std::size_t slot_number, std::size_t stream,
                      std::span<const std::uint64_t> rows, std::span<std::byte* const> out) {
  Slot& slot = slots_[slot_number];
  if (stream == 0) {
    slot.known = false;
    slot.taken = 0;
    slot.job = Job{};
    slot.job.starts = rows;
    if (!arrays_.offsets->layout.offset_batches.empty()) {
      slot.places.clear();
      for (const std::uint64_t row : rows) {
        const OffsetBatch batch = arrays_.batch_of(row);
        slot.places.push_back(batch.first_offset + row - batch.first_list);
      }
      slot.job.starts = slot.places;
    }
    slot.job.count = 2;
    slot.job.out = slot.offsets.data();
    return slot.job;
  }
  if (!slot.known) find_bounds(slot, rows);
  const std::size_t which = stream - 1;
  Values& values = slot.values[which];
  const std::uint64_t item = item_bytes(which);
  begin_values(slot, which, out.empty() ? nullptr : out[dense_ ? 0 : which]);
  make_room(slot, which, slot.total * item);
  values.runs.clear();
  std::byte* to = values.data;
  for (std::size_t i = 0; i < slot.begins.size(); ++i) {
    const std::uint64_t count = slot.ends[i] - slot.begins[i];
    if (count > 0) values.runs.push_back({slot.begins[i], count, to});
    to += count * item;
  }
  values.job = Job{};
  values.job.runs = values.runs;
  return values.job;
}

void RaggedField::check_columns(const Slot& slot) const {
  const DType index = arrays_.values[1]->layout.dtype;
  const std::byte* const indices = slot.values[1].data;
  if (all_below(index, indices, slot.total, columns_)) return;
  for (std::uint64_t i = 0; i < slot.total; ++i) {
    const std::uint64_t column = number_at(index, indices + i * index.size);
    if (column < columns_) continue;
    throw Error(ErrorKind::kFormat, "csr",
                "an index is " + std::to_string(static_cast<std::int64_t>(column)) +
                    " in a matrix of " + with_commas(columns_) + " columns")
        .in(arrays_.values[1]->layout.paths.front());
  }
}

void RaggedField::densify(const Slot& slot, std::byte* out) const {
  const DType dtype = arrays_.values[0]->layout.dtype, index = arrays_.values[1]->layout.dtype;
  const std::byte *values = slot.values[0].data, *indices = slot.values[1].data;
  std::memset(out, 0, slot.begins.size() * columns_ * dtype.size);
  for (std::size_t i = 0; i < slot.begins.size(); ++i) {
    const std::uint64_t count = slot.ends[i] - slot.begins[i];
    switch (dtype.size) {
      case 1:
        scatter<std::uint8_t>(index, values, indices, count, out);
        break;
      case 2:
        scatter<std::uint16_t>(index, values, indices, count, out);
        break;
      case 4:
        scatter<std::uint32_t>(index, values, indices, count, out);
        break;
      case 8:
        scatter<std::uint64_t>(index, values, indices, count, out);
        break;
      default:
        scatter<Item16>(index, values, indices, count, out);
    }
    values += count * dtype.size;
    indices += count * index.size;
    out += columns_ * dtype.size;
  }
}

void RaggedField::finish(std::size_t slot_number, std::span<const std::uint64_t> rows,
                         std::span<std::byte* const> out) {
  const Slot& slot = slots_[slot_number];
  if (columns_ > 0) check_columns(slot);
  if (dense_) return densify(slot, out[0]);
  std::byte* to = out[arrays_.values.size()];
  std::int64_t offset = 0;
  std::memcpy(to, &offset, sizeof offset);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    offset += static_cast<std::int64_t>(slot.ends[i] - slot.begins[i]);
    to += sizeof offset;
    std::memcpy(to, &offset, sizeof offset);
  }
}

RaggedField::Finished RaggedField::finished(std::size_t slot_number, std::size_t output,
                                            std::span<const std::uint64_t> rows, std::byte* out) {
  Slot& slot = slots_[slot_number];
  if (dense_) return {out, rows.size() * columns_ * arrays_.values[0]->layout.dtype.size, {}};
  if (output == arrays_.values.size()) return {out, (rows.size() + 1) * sizeof(std::int64_t), {}};
  Values& values = slot.values[output];
  return {values.data, slot.total * item_bytes(output), std::move(values.own)};
}

}  // namespace evenkeel
