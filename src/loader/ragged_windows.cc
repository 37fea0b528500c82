#include "loader/ragged_windows.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/checked.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

template <class T>
std::uint64_t as_number(const std::byte* data) {
  T value;
  std::memcpy(&value, data, sizeof value);
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(value));
}

}  // namespace

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

void require_bounds(const Layout& offsets, std::uint64_t row, std::uint64_t begin,
                    std::uint64_t end, std::uint64_t most) {
  if (begin <= end && end <= most) return;
  throw Error(ErrorKind::kFormat, "ragged",
              "row " + with_commas(row) + " is said to be values " +
                  std::to_string(static_cast<std::int64_t>(begin)) + " to " +
                  std::to_string(static_cast<std::int64_t>(end)) + " of " + with_commas(most))
      .in(offsets.paths.front())
      .hint("offsets must not decrease, and must not exceed the number of values");
}

OffsetBatch RaggedArrays::batch_of(std::uint64_t row) const {
  const auto& batches = offsets->layout.offset_batches;
  if (batches.empty()) return {0, rows(), 0, 0, values.front()->layout.rows};
  return *std::prev(std::ranges::upper_bound(batches, row, {}, &OffsetBatch::first_list));
}

// Runs are also cut where a batch of offsets ends.
std::uint64_t RaggedWindowReader::most_runs() const {
  const std::uint64_t batches = arrays_.offsets->layout.offset_batches.size();
  return order().most_runs() + std::min(batches, order().most_rows());
}

RaggedWindowReader::RaggedWindowReader(const RaggedArrays& arrays, const Order& order,
                                       std::uint64_t taken)
    : BlockWindows(order, arrays.rows(), {.taken = taken}), arrays_(arrays) {
  engines_.push_back(arrays_.offsets->engine());
  for (const auto& values : arrays_.values) {
    engines_.push_back(values->engine());
    const std::uint64_t row = arrays_.mean * values->layout.row_bytes;
    const std::uint64_t block = checked_mul(order.blocks.block_rows, row).value_or(UINT64_MAX);
    rooms_.push_back(WindowReader::room(block, *engines_.back()));
  }
  try {
    reserve();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;
    free_memory();
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < arrays_.values.size(); ++i) bytes += kSlots * part_bytes(i);
    const Budget& budget = arrays_.values.front()->budget;
    throw Error(ErrorKind::kBudget, "order blocks",
                "two windows of " + with_commas(this->order().most_rows()) + " rows of about " +
                    with_commas(arrays_.mean) + " values do not fit: " + with_commas(bytes) +
                    " bytes are needed, " + with_commas(budget.left()) +
                    " are left of a budget of " + budget.describe())
        .in(arrays_.values.front()->layout.paths.front())
        .hint("use a smaller window, or raise the budget");
  }
  std::vector<ReadStream> streams;
  streams.push_back({arrays_.offsets->layout, *engines_[0], arrays_.offsets->merge_gap});
  for (std::size_t i = 0; i < arrays_.values.size(); ++i) {
    const auto& values = arrays_.values[i];
    streams.push_back({values->layout, *engines_[i + 1], values->merge_gap, 0});
  }
  start(std::move(streams), arrays_.values.front()->budget.limit() / 4);
}

// For rows of the mean length, plus an eighth.
std::uint64_t RaggedWindowReader::part_bytes(std::size_t which) const {
  const std::uint64_t item = arrays_.values[which]->layout.row_bytes;
  const std::uint64_t usual = arrays_.mean * order().most_rows();
  const std::uint64_t most = std::min(usual + usual / 8, arrays_.values[which]->layout.rows);
  return most * item + most_runs() * rooms_[which].overhang();
}

void RaggedWindowReader::reserve() {
  const std::uint64_t runs = most_runs(), rows = order().most_rows();
  const bool in_batches = !arrays_.offsets->layout.offset_batches.empty();
  const Budget& budget = arrays_.values.front()->budget;
  const std::size_t streams = engines_.size();
  const std::uint64_t lists =
      runs * (sizeof(RowRun) + kSlots * streams * (sizeof(JobRun) + sizeof(std::uint64_t))) +
      kSlots * (PlacedRuns::memory(runs) + (in_batches ? runs * sizeof(OffsetBatch) : 0));
  lists_share_ = budget.reserve(lists + streams * RowFeed::memory(budget.limit() / 4, runs),
                                "plans of windows");
  slots_.resize(kSlots);
  for (Slot& slot : slots_) {
    slot.offsets = PageBuffer(budget, (rows + runs) * arrays_.offsets->layout.row_bytes,
                              "offsets of a window");
    slot.placed.reserve(runs);
    slot.runs.reserve(runs);
    if (in_batches) slot.batches.reserve(runs);
    for (std::size_t i = 0; i < arrays_.values.size(); ++i) {
      slot.values[i].memory = PageBuffer(budget, part_bytes(i), "a window of blocks");
      slot.values[i].runs.reserve(runs);
      slot.values[i].places.reserve(runs);
    }
  }
  scratch_.reserve(runs);
}

void RaggedWindowReader::free_memory() {
  slots_.clear();
  lists_share_.release();
}

void RaggedWindowReader::place_offsets(Slot& slot) {
  const std::uint64_t item = arrays_.offsets->layout.row_bytes;
  slot.known = false;
  slot.runs.clear();
  slot.batches.clear();
  slot.placed.placed.clear();
  std::byte* to = slot.offsets.data();
  std::uint64_t place = 0;
  for (const RowRun& run : scratch_) {
    for (std::uint64_t done = 0; done < run.count;) {
      const std::uint64_t row = run.start + done;
      const OffsetBatch batch = arrays_.batch_of(row);
      const std::uint64_t within = row - batch.first_list;
      const std::uint64_t count = std::min(run.count - done, batch.lists - within);
      slot.runs.push_back({batch.first_offset + within, count + 1, to});
      if (!arrays_.offsets->layout.offset_batches.empty()) slot.batches.push_back(batch);
      slot.placed.placed.push_back({place, row, to});
      place += count;
      to += (count + 1) * item;
      done += count;
    }
  }
  slot.placed.placed.push_back({place, 0, nullptr});
  slot.placed.index();
}

void RaggedWindowReader::check_offsets(const Slot& slot) const {
  const Layout& layout = arrays_.offsets->layout;
  const OffsetBatch all = arrays_.batch_of(0);
  for (std::size_t number = 0; number < slot.runs.size(); ++number) {
    const JobRun& run = slot.runs[number];
    const OffsetBatch& batch = slot.batches.empty() ? all : slot.batches[number];
    const std::uint64_t first = batch.first_list + run.start - batch.first_offset;
    std::uint64_t begin = number_at(layout.dtype, run.out);
    for (std::uint64_t i = 1; i < run.count; ++i) {
      const std::uint64_t end = number_at(layout.dtype, run.out + i * layout.row_bytes);
      require_bounds(layout, first + i - 1, begin, end, batch.values);
      begin = end;
    }
  }
}

void RaggedWindowReader::place_values(Slot& slot, std::size_t which) {
  Values& values = slot.values[which];
  const Layout& layout = arrays_.values[which]->layout;
  const DType offset = arrays_.offsets->layout.dtype;
  RunPlacer placer{layout, rooms_[which]};
  values.runs.clear();
  values.places.clear();
  for (std::size_t number = 0; number < slot.runs.size(); ++number) {
    const JobRun& run = slot.runs[number];
    const std::uint64_t before = slot.batches.empty() ? 0 : slot.batches[number].first_value;
    const std::uint64_t begin = before + number_at(offset, run.out);
    const std::uint64_t last = before + number_at(offset, run.out + (run.count - 1) * offset.size);
    values.runs.push_back({begin, last - begin, nullptr});
    values.places.push_back(placer.place(begin, last - begin));
  }
  if (placer.end > values.memory.size()) {
    values.memory = {};
    values.memory = PageBuffer(arrays_.values.front()->budget, placer.end, "a window of long rows");
  }
  for (std::size_t i = 0; i < values.runs.size(); ++i) {
    values.runs[i].out = values.memory.data() + values.places[i];
  }
  std::erase_if(values.runs, [](const JobRun& run) { return run.count == 0; });
}

Job& RaggedWindowReader::prepare_stream(std::size_t slot_number, std::uint64_t number,
                                        std::size_t stream) {
  Slot& slot = slots_[slot_number];
  if (stream == 0) {
    runs_of(number, scratch_);
    place_offsets(slot);
    slot.job = Job{};
    slot.job.runs = slot.runs;
    return slot.job;
  }
  if (!slot.known) check_offsets(slot);
  slot.known = true;
  const std::size_t which = stream - 1;
  place_values(slot, which);
  Values& values = slot.values[which];
  values.job = Job{};
  values.job.runs = values.runs;
  values.job.roomy = static_cast<bool>(rooms_[which]);
  return values.job;
}

RaggedRow RaggedWindowReader::row_at(const Slot& slot, std::uint64_t place) const {
  const DType offset = arrays_.offsets->layout.dtype;
  const PlacedRuns::Placed* const run = slot.placed.find(place);
  const auto number = static_cast<std::size_t>(run - slot.placed.placed.data());
  const std::byte* const bounds = run->data + (place - run->first_place) * offset.size;
  const std::uint64_t before = number_at(offset, run->data);
  const std::uint64_t begin = number_at(offset, bounds);
  RaggedRow row{{}, number_at(offset, bounds + offset.size) - begin};
  for (std::size_t i = 0; i < arrays_.values.size(); ++i) {
    const Values& values = slot.values[i];
    row.data[i] = values.memory.data() + values.places[number] +
                  (begin - before) * arrays_.values[i]->layout.row_bytes;
  }
  return row;
}

}  // namespace evenkeel
