#include "loader/ragged.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/checked.h"
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
                                 std::to_string(layout.shape.size()) + " axes of " +
                                 layout.dtype.name());
}

template <class T>
std::uint64_t as_number(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  // A negative number becomes one that is larger than any file.
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

std::uint64_t number_at(DType dtype, const std::byte* data) {
  const bool is_signed = dtype.kind == DTypeKind::kInt;
  switch (dtype.size) {
    case 1:
      return is_signed ? as_number<std::int8_t>(data) : as_number<std::uint8_t>(data);
    case 2:
      return is_signed ? as_number<std::int16_t>(data) : as_number<std::uint16_t>(data);
    case 4:
      return is_signed ? as_number<std::int32_t>(data) : as_number<std::uint32_t>(data);
    default:
      return as_number<std::uint64_t>(data);
  }
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

// So many can be held without their bytes leaving 64 bits.
constexpr std::uint64_t kManyBatches = 1024;

struct Item16 {
  std::array<std::byte, 16> bytes;
};

}  // namespace

RaggedField::RaggedField(ArrayPointer offsets, std::vector<ArrayPointer> values,
                         std::uint64_t columns, bool dense)
    : offsets_(std::move(offsets)), values_(std::move(values)), columns_(columns), dense_(dense) {
  const Layout& bounds = offsets_->layout;
  require_integers(bounds, "offsets");
  if (bounds.rows < 2) {
    throw wrong_ragged(bounds, "offsets of no row: there must be two or more; there are " +
                                   with_commas(bounds.rows));
  }
  const Layout& first = values_.front()->layout;
  if (values_.size() > 1) {
    const Layout& indices = values_[1]->layout;
    require_integers(indices, "indices");
    if (indices.rows != first.rows) {
      throw wrong_ragged(indices, "there are " + with_commas(indices.rows) + " indices and " +
                                      with_commas(first.rows) + " values in " +
                                      visible(first.paths.front()));
    }
    if (first.shape.size() != 1) throw wrong_ragged(first, "values must have one axis");
    if (columns_ == 0) throw wrong_ragged(indices, "a matrix of 0 columns");
    if (first.dtype.size > 8 && first.dtype.size != 16) {
      throw wrong_ragged(first, "values of " + first.dtype.name() + " make no matrix");
    }
  }
  const std::uint64_t begin = read_offset(*offsets_, 0), end = read_offset(*offsets_, rows());
  if (begin > end || end > first.rows) {
    throw wrong_ragged(bounds, "offsets go from " + with_commas(begin) + " to " + with_commas(end) +
                                   ", but there are " + with_commas(first.rows) + " values in " +
                                   visible(first.paths.front()))
        .hint(
            "offsets of n rows are n + 1 numbers that never decrease, up to the number of values");
  }
  mean_ = (end - begin) / rows() + 1;
}

std::string RaggedField::fingerprint() const {
  std::string text = fingerprint_of(offsets_->layout, "offsets");
  for (const ArrayPointer& values : values_) {
    text += " & " + fingerprint_of(values->layout, "values");
  }
  return text + (columns_ > 0 ? " columns=" + std::to_string(columns_) : "");
}

// The mean and a quarter, and a few rows more.
std::uint64_t RaggedField::usual_values(std::uint64_t batch_size) const {
  const std::uint64_t all = values_.front()->layout.rows;
  return std::min(all, checked_mul(mean_, batch_size + batch_size / 4 + 4).value_or(all));
}

std::vector<RaggedField::Output> RaggedField::outputs(std::uint64_t batch_size) const {
  const DType dtype = values_.front()->layout.dtype;
  if (dense_) {
    const auto row = checked_mul(columns_, dtype.size);
    const auto bytes = row ? checked_mul(*row, batch_size) : std::nullopt;
    if (!bytes || !checked_mul(*bytes, kManyBatches)) {
      throw wrong_ragged(values_.front()->layout, "batches of " + with_commas(batch_size) +
                                                      " rows of " + with_commas(columns_) +
                                                      " columns of " + dtype.name() +
                                                      " are too large to be dense")
          .hint("use the sparse form, or a smaller batch_size");
    }
    return {{dtype, *row, *bytes}};
  }
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    outputs.push_back({values_[i]->layout.dtype, 0, usual_values(batch_size) * item_bytes(i)});
  }
  outputs.push_back({DType::of<std::int64_t>(), 0, (batch_size + 1) * sizeof(std::int64_t)});
  return outputs;
}

std::uint64_t RaggedField::slot_bytes(std::uint64_t batch_size) const {
  std::uint64_t bytes = batch_size * (2 * offsets_->layout.row_bytes + 2 * sizeof(std::uint64_t) +
                                      values_.size() * sizeof(JobRun));
  if (dense_) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
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
      batch_size * (2 * sizeof(std::uint64_t) + values_.size() * sizeof(JobRun)), "a batch's rows");
  slot.offsets = PageBuffer(budget, batch_size * 2 * offsets_->layout.row_bytes, "offsets of rows");
  slot.begins.reserve(batch_size);
  slot.ends.reserve(batch_size);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    slot.values[i].runs.reserve(batch_size);
    if (!dense_) continue;
    slot.values[i].staging =
        PageBuffer(budget, usual_values(batch_size) * item_bytes(i), "values of rows");
  }
  slots_.push_back(std::move(slot));
}

void RaggedField::find_bounds(Slot& slot, std::span<const std::uint64_t> rows) const {
  const Layout& layout = offsets_->layout;
  const std::uint64_t size = layout.row_bytes, most = values_.front()->layout.rows;
  std::uint64_t largest = 1;
  for (std::size_t i = 0; i < values_.size(); ++i) largest = std::max(largest, item_bytes(i));
  slot.begins.clear();
  slot.ends.clear();
  slot.total = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::byte* const pair = slot.offsets.data() + 2 * i * size;
    const std::uint64_t begin = number_at(layout.dtype, pair);
    const std::uint64_t end = number_at(layout.dtype, pair + size);
    if (begin > end || end > most) {
      throw Error(ErrorKind::kFormat, "ragged",
                  "row " + with_commas(rows[i]) + " is said to be values " +
                      std::to_string(static_cast<std::int64_t>(begin)) + " to " +
                      std::to_string(static_cast<std::int64_t>(end)) + " of " + with_commas(most))
          .in(layout.paths.front())
          .hint("offsets must not decrease, and must not exceed the number of values");
    }
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

Job& RaggedField::job(std::size_t slot_number, std::size_t stream,
                      std::span<const std::uint64_t> rows, std::span<std::byte* const> out) {
  Slot& slot = slots_[slot_number];
  if (stream == 0) {
    slot.known = false;
    slot.job = Job{};
    slot.job.starts = rows;
    slot.job.count = 2;
    slot.job.out = slot.offsets.data();
    return slot.job;
  }
  if (!slot.known) find_bounds(slot, rows);
  const std::size_t which = stream - 1;
  Values& values = slot.values[which];
  const std::uint64_t item = item_bytes(which), bytes = slot.total * item;
  values.own.reset();
  values.data = dense_ ? values.staging.data() : out[which];
  if (bytes > usual_values(batch_size_) * item) {
    values.own = std::make_shared<PageBuffer>(slot.budget, bytes, "a batch of long rows");
    values.data = values.own->data();
  }
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
  const DType index = values_[1]->layout.dtype;
  const std::byte* const indices = slot.values[1].data;
  for (std::uint64_t i = 0; i < slot.total; ++i) {
    const std::uint64_t column = number_at(index, indices + i * index.size);
    if (column < columns_) continue;
    throw Error(ErrorKind::kFormat, "csr",
                "an index is " + std::to_string(static_cast<std::int64_t>(column)) +
                    " in a matrix of " + with_commas(columns_) + " columns")
        .in(values_[1]->layout.paths.front());
  }
}

void RaggedField::densify(const Slot& slot, std::byte* out) const {
  const DType dtype = values_[0]->layout.dtype, index = values_[1]->layout.dtype;
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
  std::byte* to = out[values_.size()];
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
  if (dense_) return {out, rows.size() * columns_ * values_[0]->layout.dtype.size, {}};
  if (output == values_.size()) return {out, (rows.size() + 1) * sizeof(std::int64_t), {}};
  Values& values = slot.values[output];
  return {values.data, slot.total * item_bytes(output), std::move(values.own)};
}

}  // namespace evenkeel
