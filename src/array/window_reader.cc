#include "array/window_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <exception>
#include <utility>

#include "array/row_extents.h"
#include "base/checked.h"
#include "base/sys.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// How often a `take` that waits for the disk checks for an interruption.
constexpr auto kLookInterval = std::chrono::milliseconds(20);
// Rows are scattered over a window, so each is prefetched before it is needed.
constexpr std::size_t kRowsAhead = 4;
constexpr std::uint64_t kSmallRoom = 32;  // the room is small beside this many alignments
// With memory aligned to pages, a virtual disk read blocks of 64 KiB a fifth faster than with
// memory aligned to 512 bytes, and larger ones a quarter. 64 KiB are this many pages.
constexpr std::uint64_t kPagesOfLargeBlocks = 16;
constexpr std::uint64_t kCacheLine = 64, kMostPrefetched = 1024;

}  // namespace

void PlacedRuns::reserve(std::uint64_t runs) {
  placed.reserve(runs + 1);
  finder.reserve(2 * (runs + 1));
}

void PlacedRuns::index() {
  const std::uint64_t places = placed.back().first_place;
  const std::uint64_t runs = placed.size() - 1;
  finder.clear();
  if (runs == 0) return;
  step = static_cast<unsigned>(std::bit_width(places / runs) - 1);
  std::uint32_t run = 0;
  for (std::uint64_t place = 0; place < places; place += std::uint64_t{1} << step) {
    while (placed[run + 1].first_place <= place) ++run;
    finder.push_back(run);
  }
}

std::uint64_t RunPlacer::place(std::uint64_t row, std::uint64_t rows) {
  std::uint64_t shift = 0, taken;
  if (room && rows > 0) {
    shift = piece_of(layout, 0, row, rows, nullptr, taken).offset % room.alignment;
  }
  const std::uint64_t at = end + shift;
  end = at + rows * layout.row_bytes;
  if (room) end = round_up(end, room.unit);
  return at;
}

void WindowHolder::start(std::vector<ReadStream> streams, std::uint64_t limit, std::uint64_t end) {
  ahead_.emplace(std::move(streams), *this,
                 ReadAhead::Options{.slots = kSlots,
                                    .end = end,
                                    .budget_limit = limit,
                                    .closed_hint = "call chunks() again",
                                    .what = "chunks",
                                    .kind = std::nullopt});  // windows are not batches
}

bool WindowHolder::close(std::optional<ReadAhead::Clock::time_point> deadline) {
  interrupted_ = true;
  if (!ahead_->close(deadline)) return false;
  MutexLock lock(mutex_);
  loaded_ = {};
  free_memory();
  return true;
}

std::uint64_t WindowHolder::number_at_end(std::uint64_t end) const {
  return end == 0 ? 0 : number_of(end - 1) + 1;
}

std::size_t WindowHolder::wait_for(std::uint64_t window) {
  MutexLock lock(mutex_);
  const std::size_t place = window % kSlots;
  while (!loaded_[place].present || loaded_[place].window != window) {
    if (interrupted_) {
      throw Error(ErrorKind::kClosed, "chunks", "reading was interrupted").hint("call seek");
    }
    if (waiting_) {
      changed_.wait(mutex_);
      continue;
    }
    waiting_ = true;
    lock.unlock();
    std::optional<std::uint64_t> taken;
    std::exception_ptr failure;
    try {
      const auto use = [&](std::size_t, std::uint64_t number) { taken = number; };
      ahead_->take(use, ReadAhead::Clock::now() + kLookInterval);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    waiting_ = false;
    changed_.notify_all();
    if (failure) std::rethrow_exception(failure);
    if (!taken) continue;
    const std::uint64_t first = std::max(begin_of(*taken), first_position_);
    std::uint64_t left = end_of(*taken) - std::min(first, end_of(*taken));
    if (const auto passed = passed_.extract(*taken)) left -= passed.mapped();
    if (left > 0) {
      loaded_[*taken % kSlots] = {true, *taken, left};
    } else {
      ahead_->give_back(*taken);  // a rank may have no rows in a window
    }
  }
  return place;
}

// After the last row, the next window but one is read into the same memory.
void WindowHolder::took(std::uint64_t window, std::uint64_t rows) {
  MutexLock lock(mutex_);
  count_down(window, rows);
}

void WindowHolder::pass(std::uint64_t first, std::uint64_t end) {
  MutexLock lock(mutex_);
  while (first < end) {
    const std::uint64_t window = number_of(first);
    const std::uint64_t rows = std::min(end, end_of(window)) - first;
    const LoadedWindow& loaded = loaded_[window % kSlots];
    if (loaded.present && loaded.window == window) {
      count_down(window, rows);
    } else {
      passed_[window] += rows;
    }
    first += rows;
  }
}

void WindowHolder::count_down(std::uint64_t window, std::uint64_t rows) {
  LoadedWindow& loaded = loaded_[window % kSlots];
  loaded.rows_left -= rows;
  if (loaded.rows_left > 0) return;
  loaded.present = false;
  ahead_->give_back(window);
}

void WindowHolder::seek(std::uint64_t position, std::uint64_t end) {
  const std::uint64_t end_window = number_at_end(end);
  ahead_->seek(position < end ? number_of(position) : end_window, end_window);
  MutexLock lock(mutex_);
  loaded_ = {};
  passed_.clear();
  first_position_ = position;
  interrupted_ = false;
}

BlockWindows::BlockWindows(const Order& order, std::uint64_t samples, const Epochs& epochs)
    : first_epoch_(order),
      repeat_(epochs.repeat),
      samples_(samples),
      order_(order, samples),
      positions_(epochs.taken.value_or(order_.first_position(order_.windows()))),
      windows_(positions_ == 0 ? 0 : order_.window_of(positions_ - 1) + 1) {}

void BlockWindows::runs_of(std::uint64_t number, std::vector<RowRun>& runs) const {
  order_at(number / windows_).runs(number % windows_, runs);
}

BlockOrder BlockWindows::order_at(std::uint64_t number) const {
  return {first_epoch_.at_epoch(epoch_at(number)), samples_};
}

std::uint64_t BlockWindows::number_of(std::uint64_t position) const {
  return position / positions_ * windows_ + order_.window_of(position % positions_);
}

std::uint64_t BlockWindows::begin_of(std::uint64_t number) const {
  return number / windows_ * positions_ + order_.first_position(number % windows_);
}

std::uint64_t BlockWindows::end_of(std::uint64_t number) const {
  return number / windows_ * positions_ +
         std::min(positions_, order_.first_position(number % windows_ + 1));
}

RunRoom WindowReader::room(std::uint64_t block_bytes, const Engine& engine) {
  const std::uint64_t alignment = engine.limits().alignment, page = sys::page_size();
  if (block_bytes < kSmallRoom * alignment) return {};
  const bool large = alignment > 1 && block_bytes >= kPagesOfLargeBlocks * page;
  return {alignment, large ? std::max(alignment, page) : alignment};
}

RunRoom WindowReader::room(const Layout& layout, const Engine& engine, const Order& order,
                           const SampleShape& shape) {
  const auto bytes = checked_mul(order.blocks.block_rows, stride(layout, shape));
  return room(bytes.value_or(UINT64_MAX), engine);
}

std::uint64_t WindowReader::part_bytes(const Layout& layout, const BlockOrder& order,
                                       const SampleShape& shape, const RunRoom& room) {
  return order.most_rows() * stride(layout, shape) +
         order.most_runs() * (room.overhang() + shape.overlap * layout.row_bytes);
}

std::uint64_t WindowReader::list_bytes(const BlockOrder& order) {
  const std::uint64_t runs = order.most_runs();
  return (runs + 1) * (sizeof(RowRun) + kSlots * sizeof(JobRun)) +
         kSlots * PlacedRuns::memory(runs);
}

std::uint64_t WindowReader::plan_bytes(const Array::Impl& array, const BlockOrder& order) {
  return RowFeed::memory(array.budget.limit() / 4, order.most_runs());
}

std::uint64_t WindowReader::memory(const Array::Impl& array, const Engine& engine,
                                   const Order& order, const SampleShape& shape) {
  const BlockOrder blocks(order, shape.samples);
  const std::uint64_t part =
      part_bytes(array.layout, blocks, shape, room(array.layout, engine, order, shape));
  return kSlots * round_up(part, sys::page_size()) + list_bytes(blocks) + plan_bytes(array, blocks);
}

WindowReader::WindowReader(std::shared_ptr<Array::Impl> array, std::shared_ptr<Engine> engine,
                           const Order& order, SampleShape shape, const Epochs& epochs)
    : BlockWindows(order, shape.samples, epochs),
      array_(std::move(array)),
      engine_(std::move(engine)),
      shape_(std::move(shape)),
      stride_(stride(array_->layout, shape_)),
      sample_bytes_(stride_ + shape_.overlap * array_->layout.row_bytes),
      room_(room(array_->layout, *engine_, order, shape_)) {
  const std::uint64_t bytes = part_bytes(array_->layout, this->order(), shape_, room_);
  try {
    lists_share_ = array_->budget.reserve(
        list_bytes(this->order()) + plan_bytes(*array_, this->order()), "plans of windows");
    slots_.resize(kSlots);
    for (Slot& slot : slots_) {
      slot.memory = PageBuffer(array_->budget, bytes, "a window of blocks");
      slot.runs.reserve(this->order().most_runs());
      slot.placed.reserve(this->order().most_runs());
    }
    scratch_.reserve(this->order().most_runs());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;
    slots_.clear();
    lists_share_.release();
    throw_too_large(order);
  }
  start({{array_->layout, *engine_, array_->merge_gap}}, array_->budget.limit() / 4);
}

// Searches for the largest window that fits, because lists and plans grow with the window.
void WindowReader::throw_too_large(const Order& order) const {
  const Layout& layout = array_->layout;
  const std::uint64_t left = array_->budget.left();
  std::uint64_t fitting = 0, beyond = order.blocks.window_blocks;
  while (beyond - fitting > 1) {
    Order smaller = order;
    smaller.blocks.window_blocks = fitting + (beyond - fitting) / 2;
    const bool fits = memory(*array_, *engine_, smaller, shape_) <= left;
    (fits ? fitting : beyond) = smaller.blocks.window_blocks;
  }
  throw Error(ErrorKind::kBudget, "order blocks",
              "two windows of " + with_commas(this->order().most_rows()) + " rows of " +
                  with_commas(stride_) + " bytes do not fit: " +
                  with_commas(memory(*array_, *engine_, order, shape_)) + " bytes are needed, " +
                  with_commas(left) + " are left of a budget of " + array_->budget.describe())
      .in(layout.paths.front())
      .hint(fitting > 0 ? "use a window of at most " + with_commas(fitting) + " blocks of " +
                              with_commas(order.blocks.block_rows) + " rows, or raise the budget"
                        : "use smaller blocks, or raise the budget");
}

void WindowReader::free_memory() {
  slots_.clear();
  lists_share_.release();
}

void WindowReader::lay_out(Slot& slot, std::uint64_t epoch) {
  const std::uint64_t first_row = shape_.row(epoch, 0);
  RunPlacer placer{array_->layout, room_};
  slot.runs.clear();
  slot.placed.placed.clear();
  std::uint64_t place = 0;
  for (const RowRun& run : scratch_) {
    const std::uint64_t row = first_row + run.start * shape_.rows;
    const std::uint64_t rows = run.count * shape_.rows + shape_.overlap;
    std::byte* data = slot.memory.data() + placer.place(row, rows);
    slot.runs.push_back({row, rows, data});
    slot.placed.placed.push_back({place, run.start, data});
    place += run.count;
  }
  slot.placed.placed.push_back({place, 0, nullptr});
}

Job& WindowReader::prepare(std::size_t slot_number, std::uint64_t number) {
  Slot& slot = slots_[slot_number];
  runs_of(number, scratch_);
  lay_out(slot, epoch_of(number));
  slot.placed.index();
  slot.job = Job{};
  slot.job.runs = slot.runs;
  slot.job.roomy = static_cast<bool>(room_);
  return slot.job;
}

void WindowReader::copy(const Slot& slot, std::span<std::uint64_t> rows, std::byte* out) const {
  const std::uint64_t prefetched = std::min(sample_bytes_, kMostPrefetched);
  std::array<const std::byte*, kRowsAhead> coming;
  const auto find = [&](std::uint64_t& row) {
    const std::uint64_t place = row;
    const PlacedRuns::Placed* run = slot.placed.find(place);
    const std::uint64_t within = place - run->first_place;
    row = run->start + within;
    const std::byte* data = run->data + within * stride_;
    for (std::uint64_t at = 0; at < prefetched; at += kCacheLine) __builtin_prefetch(data + at);
    return data;
  };
  const std::size_t count = rows.size();
  for (std::size_t i = 0; i < std::min(count, kRowsAhead); ++i) coming[i] = find(rows[i]);
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* data = coming[i % kRowsAhead];
    if (i + kRowsAhead < count) coming[i % kRowsAhead] = find(rows[i + kRowsAhead]);
    std::memcpy(out + i * sample_bytes_, data, sample_bytes_);
  }
}

void WindowReader::take(std::uint64_t first, std::span<std::uint64_t> rows, std::byte* out) {
  take_places(first, rows, [&](std::size_t slot, std::span<std::uint64_t> places) {
    copy(slots_[slot], places, out);
    out += places.size() * sample_bytes_;
  });
}

}  // namespace evenkeel
