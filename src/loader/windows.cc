#include "loader/windows.h"

#include <algorithm>
#include <utility>

#include "evenkeel/error.h"
#include "order/block_order.h"

namespace evenkeel {
namespace {

void require_window(const BlockOptions& blocks, const StepOptions& steps, std::uint64_t samples) {
  const std::uint64_t step = steps.batch_size * steps.world;
  if (blocks.window_rows() >= std::min(samples, step)) return;
  throw Error(ErrorKind::kInvalid, "loader",
              "a window of " + with_commas(blocks.window_blocks) + " blocks of " +
                  with_commas(blocks.block_rows) + " rows is smaller than a step of " +
                  with_commas(step) + " rows")
      .hint("rows of different windows are not mixed: use a window of many steps");
}

// A mixture takes whole turns of a set, so that each rank has whole streams.
void require_turns(const BlockOptions& blocks, std::uint64_t samples) {
  if (samples >= blocks.streams) return;
  throw Error(ErrorKind::kInvalid, "loader",
              "a mixture in order \"blocks\" takes " + with_commas(blocks.streams) +
                  " samples of a set at a time, one for each stream; a set has " +
                  with_commas(samples))
      .hint("use fewer streams, or another order");
}

// Also for mapped rows, which need no windows: with a world that does not divide the streams, the
// ranks of a mixture may take the same rows.
void require_blocks(const BlockOptions& blocks, const StepOptions& steps, std::uint64_t samples,
                    std::size_t sets) {
  Order order;
  order.kind = OrderKind::kBlocks;
  order.rank = steps.rank;
  order.world = steps.world;
  order.blocks = blocks;
  const BlockOrder checked(order, samples);
  require_window(blocks, steps, samples);
  if (sets > 1) require_turns(blocks, samples);
}

}  // namespace

BlockOptions choose_blocks(const LoaderBlocks& blocks, const StepOptions& steps) {
  const std::size_t sets = blocks.samples.size();
  BlockOptions chosen = choose_blocks({.row_bytes = blocks.sample_bytes,
                                       .budget = blocks.budget,
                                       .world = steps.world,
                                       .block_rows = blocks.given.block_rows,
                                       .streams = blocks.given.streams,
                                       .sets = sets,
                                       .step_rows = steps.batch_size * steps.world});
  if (blocks.given.window_blocks > 0) chosen.window_blocks = blocks.given.window_blocks;
  for (const std::uint64_t samples : blocks.samples) {
    require_blocks(chosen, steps, samples, sets);
  }
  return chosen;
}

LoaderWindows::LoaderWindows(const Steps& steps, std::vector<Set> sets)
    : steps_(steps), sets_(std::move(sets)) {}

Order LoaderWindows::order_of(const Set& set) const {
  return set.order->get().for_rank(steps_.options().rank, steps_.options().world);
}

std::uint64_t LoaderWindows::taken_of_epoch(const Set& set) const {
  if (sets_.size() == 1) return steps_.taken_of_epoch();
  return whole_turns(set.order->get(), set.shape.samples) / steps_.options().world;
}

// Whether the offsets are mapped does not matter: they are small compared to the values.
bool LoaderWindows::Field::mapped() const {
  if (!ragged) return array->maps_files();
  return std::ranges::all_of(ragged->arrays().values,
                             [](const auto& values) { return values->maps_files(); });
}

bool LoaderWindows::Field::stop_mapping() const {
  if (array->stop_mapping(0)) return true;
  return ragged && std::ranges::any_of(ragged->arrays().values,
                                       [](const auto& values) { return values->stop_mapping(0); });
}

void LoaderWindows::make_readers() {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const auto& [array, ragged] = fields_[i];
    if (opened_ ? !has_[i] : fields_[i].mapped()) continue;
    for (const Set& set : sets_) {
      const Order order = order_of(set);
      const std::uint64_t taken = taken_of_epoch(set);
      if (ragged) {
        readers_[i].push_back(std::make_unique<RaggedWindowReader>(ragged->arrays(), order, taken));
      } else {
        readers_[i].push_back(std::make_unique<WindowReader>(
            array, array->engine(), order, set.shape, BlockWindows::Epochs{taken, set.repeat}));
      }
    }
  }
}

void LoaderWindows::open_readers() {
  for (;;) {
    readers_.clear();
    readers_.resize(fields_.size());
    try {
      return make_readers();
    } catch (const Error& error) {
      readers_.clear();
      if (error.kind() != ErrorKind::kBudget) throw;
      bool room = false;
      for (std::size_t i = 0; i < fields_.size() && !room; ++i) {
        room = (!opened_ || has_[i]) && fields_[i].stop_mapping();
      }
      if (!room) throw;
    }
  }
}

void LoaderWindows::open(std::vector<Field> fields) {
  fields_ = std::move(fields);
  opened_ = false;
  has_.assign(fields_.size(), false);
  if (sets_.front().order->get().kind != OrderKind::kBlocks) return;
  open_readers();
  for (std::size_t i = 0; i < fields_.size(); ++i) has_[i] = !readers_[i].empty();
  opened_ = true;
}

bool LoaderWindows::any() const {
  return std::ranges::any_of(has_, [](bool has) { return has; });
}

bool LoaderWindows::missing() const { return any() && readers_.empty(); }

void LoaderWindows::require_possible(const BlockOptions& blocks) const {
  for (const Set& set : sets_) {
    require_blocks(blocks, steps_.options(), set.shape.samples, sets_.size());
  }
}

void LoaderWindows::change(const BlockOptions& blocks) {
  require_possible(blocks);
  const BlockOptions before = this->blocks();
  const auto open_with = [&](const BlockOptions& sizes) {
    for (const Set& set : sets_) {
      Order order = set.order->get();
      order.blocks = sizes;
      set.order->set(order);
    }
    // Fields without windows do not get any, even if they are not mapped any more.
    open_readers();
  };
  try {
    open_with(blocks);
  } catch (...) {
    open_with(before);
    throw;
  }
}

void LoaderWindows::require_readers(std::size_t field) const {
  if (!missing()) return;
  throw Error(ErrorKind::kBudget, "loader",
              "the windows were released when a state was loaded, and no longer fit the budget")
      .in(fields_[field].array->layout.paths.front())
      .hint("load a state whose windows fit the budget, or create a new loader");
}

void LoaderWindows::take(std::size_t field, std::span<const SamplePiece> pieces,
                         std::span<std::uint64_t> scratch, std::byte* out) {
  require_readers(field);
  const std::uint64_t row_bytes = fields_[field].array->layout.row_bytes;
  for (const SamplePiece& piece : pieces) {
    const SampleShape& shape = sets_[piece.set].shape;
    auto& reader = static_cast<WindowReader&>(*readers_[field][piece.set]);
    reader.take(piece.first, scratch.first(piece.count), out);
    scratch = scratch.subspan(piece.count);
    out += piece.count * (shape.rows + shape.overlap) * row_bytes;
  }
}

void LoaderWindows::take_ragged(std::size_t field, std::span<const SamplePiece> pieces,
                                std::span<std::uint64_t> scratch, std::size_t slot,
                                std::span<std::byte* const> out) {
  require_readers(field);
  RaggedField& ragged = *fields_[field].ragged;
  ragged.begin(slot, out);
  for (const SamplePiece& piece : pieces) {
    auto& reader = static_cast<RaggedWindowReader&>(*readers_[field][piece.set]);
    ragged.take(slot, reader, piece.first, scratch.first(piece.count));
    scratch = scratch.subspan(piece.count);
  }
}

void LoaderWindows::for_each(
    const std::function<void(std::size_t set, WindowHolder& reader)>& use) const {
  for (const Readers& readers : readers_) {
    for (std::size_t set = 0; set < readers.size(); ++set) use(set, *readers[set]);
  }
}

void LoaderWindows::pass(const Positions& first, const Positions& end) {
  for_each([&](std::size_t set, WindowHolder& reader) { reader.pass(first[set], end[set]); });
}

void LoaderWindows::seek(const Positions& first, const Positions& end) {
  for_each([&](std::size_t set, WindowHolder& reader) { reader.seek(first[set], end[set]); });
}

void LoaderWindows::interrupt() {
  for_each([](std::size_t, WindowHolder& reader) { reader.interrupt(); });
}

bool LoaderWindows::close(std::optional<ReadAhead::Clock::time_point> deadline) {
  bool closed = true;
  for_each([&](std::size_t, WindowHolder& reader) { closed = closed && reader.close(deadline); });
  return closed;
}

void IdleEngine::run(Feed& feed) {
  for (Extent extent; feed.next(extent);) {
  }
}

}  // namespace evenkeel
