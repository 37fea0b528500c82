#include <algorithm>
#include <deque>

#include "array/read_ahead.h"
#include "array/row_extents.h"
#include "base/checked.h"
#include "tokens/impl.h"
#include "tokens/schedule.h"
#include "tokens/widen.h"

namespace evenkeel {
namespace {

DType output_type(TokenType type, DType stored) {
  if (type == TokenType::kStored) return stored;
  return type == TokenType::kInt32 ? DType::of<std::int32_t>() : DType::of<std::int64_t>();
}

}  // namespace

struct TokenLoader::Impl final : BatchMaker {
  Impl(std::vector<WeightedTokens> sets, LoaderOptions loader_options)
      : options(check(std::move(loader_options), sets)),
        mixture(std::move(sets)),
        array(mixture.size() == 1 ? mixture[0].tokens.impl()->array : open_joined()),
        engine(array->engine()),
        out_type(output_type(options.type, array->layout.dtype)),
        schedule(mixture, options),
        explaining(mixture, options) {
    make_slots();
    ahead.emplace(
        array->layout, *engine, *this,
        ReadAhead::Options{.slots = slots.size(),
                           .end = options.steps == 0 ? UINT64_MAX : turn_of(options.steps),
                           .finish_on_own_thread = slots.size() > 1,
                           .second_reads = slots.size() > 1 && second_plan_share.bytes() > 0,
                           .merge_gap = {},
                           .budget_limit = array->budget.limit()});
  }

  static LoaderOptions check(LoaderOptions options, const std::vector<WeightedTokens>& sets) {
    if (sets.empty()) throw Error(ErrorKind::kInvalid, "loader", "no tokens were given");
    const auto wrong = [](const std::string& what) {
      return Error(ErrorKind::kInvalid, "loader", what);
    };
    if (options.batch_size == 0) throw wrong("a batch of 0 rows");
    if (options.world == 0 || options.rank >= options.world) {
      throw wrong("rank " + with_commas(options.rank) + " of a world of " +
                  with_commas(options.world))
          .hint("ranks go from 0 to world-1");
    }
    if (options.stride == 0 || options.phase >= options.stride) {
      throw wrong("phase " + with_commas(options.phase) + " of a stride of " +
                  with_commas(options.stride))
          .hint("phases go from 0 to stride-1");
    }
    if (!checked_mul(options.batch_size, options.world))
      throw wrong("world * batch_size overflows");
    if (!options.memory.empty() && options.memory.size() < 1 + std::size_t{options.keep}) {
      throw wrong(with_commas(options.memory.size()) +
                  " batches of memory were given; with keep = " + std::to_string(options.keep) +
                  " it takes at least " + std::to_string(options.keep + 1));
    }
    return options;
  }

  std::shared_ptr<Array::Impl> open_joined() const {
    const Tokens::Impl& first = *mixture.front().tokens.impl();
    return std::make_shared<Array::Impl>(
        joined_layout(mixture),
        ArrayOptions{.budget = first.array->budget, .engine = first.engine});
  }

  // Memory of one batch: tokens as stored, and x and y unless they are laid in the caller's.
  struct Slot {
    PageBuffer stored, x, y;
    Reservation starts_share;
    std::vector<std::uint64_t> starts;
    Job job;
    std::byte *x_out = nullptr, *y_out = nullptr;
  };

  std::uint64_t stored_bytes() const {
    return options.batch_size * (options.block_size + 1) * array->layout.dtype.size;
  }
  std::uint64_t out_bytes() const {
    return options.batch_size * options.block_size * out_type.size;
  }

  void add_slot() {
    const Budget& budget = array->budget;
    Slot slot;
    slot.stored = PageBuffer(budget, stored_bytes(), "a batch's tokens as stored");
    slot.starts_share = budget.reserve(options.batch_size * 8, "a batch's starts");
    if (options.memory.empty()) {
      slot.x = PageBuffer(budget, out_bytes(), "a batch's x");
      slot.y = PageBuffer(budget, out_bytes(), "a batch's y");
    }
    slot.starts.reserve(options.batch_size);
    slots.push_back(std::move(slot));
  }

  void make_slots() {
    const auto tokens = checked_mul(options.batch_size, options.block_size + 1);
    if (!tokens || !checked_mul(*tokens, 8)) {
      throw Error(ErrorKind::kInvalid, "loader", "batch_size * block_size overflows");
    }
    for (const BatchMemory& memory : options.memory) {
      if (memory.x.size() >= out_bytes() && memory.y.size() >= out_bytes()) continue;
      throw Error(ErrorKind::kInvalid, "loader",
                  "memory for a batch needs " + with_commas(out_bytes()) +
                      " bytes for x and for y; "
                      "given were " +
                      with_commas(memory.x.size()) + " and " + with_commas(memory.y.size()));
    }
    const Budget& budget = array->budget;
    const std::size_t least = 1 + std::size_t{options.keep};
    std::size_t most = least + options.prefetch;
    if (!options.memory.empty()) most = std::min(most, options.memory.size());
    slots.reserve(most);
    try {
      plan_share =
          budget.reserve(RowFeed::memory(budget.limit(), options.batch_size), "plans of batches");
      while (slots.size() < least) add_slot();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBudget) throw;
      throw Error(ErrorKind::kBudget, "loader",
                  "batches of " + with_commas(options.batch_size) + " x " +
                      with_commas(options.block_size) + " tokens need " +
                      with_commas(stored_bytes() + (options.memory.empty() ? 2 * out_bytes() : 0)) +
                      " bytes each, and at least " + std::to_string(least) +
                      " of them; of the budget of " + budget.describe() + " " +
                      with_commas(budget.left()) + " bytes are left")
          .hint("raise the budget, or take a smaller batch_size");
    }
    // Fewer ahead rather than none at all; buffers() says how many.
    try {
      while (slots.size() < most) add_slot();
      second_plan_share =
          budget.reserve(RowFeed::memory(budget.limit(), options.batch_size), "plans of batches");
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBudget) throw;
    }
  }

  // Batches are counted in turns: turn t is step phase + t * stride.
  std::uint64_t step_of(std::uint64_t which) const {
    return options.phase + which * options.stride;
  }
  // The first turn whose step is `from` or later.
  std::uint64_t turn_of(std::uint64_t from) const {
    return from <= options.phase ? 0 : (from - options.phase - 1) / options.stride + 1;
  }

  Job& prepare(std::size_t number_of_slot, std::uint64_t batch_turn) override {
    Slot& slot = slots[number_of_slot];
    slot.starts.clear();
    schedule.for_each(step_of(batch_turn),
                      [&](const Schedule::Sample& sample) { slot.starts.push_back(sample.start); });
    slot.job = Job{};
    slot.job.starts = slot.starts;
    slot.job.count = options.block_size + 1;
    slot.job.out = slot.stored.data();
    if (options.memory.empty()) {
      slot.x_out = slot.x.data();
      slot.y_out = slot.y.data();
    } else {
      // As many slots as batches of memory are in use at once, so a slot keeps its own.
      slot.x_out = options.memory[number_of_slot].x.data();
      slot.y_out = options.memory[number_of_slot].y.data();
    }
    return slot.job;
  }

  void finish(std::size_t number_of_slot, std::uint64_t) override {
    const Slot& slot = slots[number_of_slot];
    const std::uint64_t stored_row = (options.block_size + 1) * array->layout.dtype.size;
    const std::uint64_t out_row = options.block_size * out_type.size;
    bool fits = true;
    for (std::uint64_t i = 0; i < options.batch_size; ++i) {
      fits &= widen_xy(array->layout.dtype, slot.stored.data() + i * stored_row, options.block_size,
                       out_type, slot.x_out + i * out_row, slot.y_out + i * out_row);
    }
    if (!fits) throw token_too_large(array->layout, out_type);
  }

  void require_owner() const {
    if (ahead->owned_here()) return;
    throw Error(ErrorKind::kClosed, "loader", "this loader was made before a fork")
        .hint("make the loader in the child; the tokens themselves may be used there");
  }

  const Batch* next() {
    require_owner();
    while (held.size() > options.keep) {
      ahead->give_back(held.front());
      held.pop_front();
    }
    if (options.steps != 0 && step() >= options.steps) return nullptr;
    const Slot& slot = slots[ahead->take(turn)];
    held.push_back(turn);
    batch.step = step();
    ++turn;
    batch.x = {{slot.x_out, out_bytes()}, out_type, options.batch_size, options.block_size};
    batch.y = {{slot.y_out, out_bytes()}, out_type, options.batch_size, options.block_size};
    return &batch;
  }

  std::uint64_t step() const { return step_of(turn); }

  void seek(std::uint64_t to) {
    require_owner();
    turn = turn_of(to);
    ahead->seek(turn);
    held.clear();
  }

  std::string describe_data() const {
    std::string text;
    const std::vector<std::uint64_t>& shares = schedule.mixture().shares();
    for (std::size_t i = 0; i < mixture.size(); ++i) {
      if (i > 0) text += " | ";
      if (mixture.size() > 1) {
        text += "share=" + std::to_string(shares[i]) + "/" +
                std::to_string(schedule.mixture().period()) + " ";
      }
      text += mixture[i].tokens.fingerprint();
    }
    return text;
  }

  const LoaderOptions options;
  const std::vector<WeightedTokens> mixture;
  const std::shared_ptr<Array::Impl> array;
  const std::shared_ptr<Engine> engine;
  const DType out_type;
  Schedule schedule;            // of those who read
  mutable Schedule explaining;  // the user's
  Reservation plan_share, second_plan_share;
  std::vector<Slot> slots;
  Batch batch;
  std::uint64_t turn = 0;
  std::deque<std::uint64_t> held;  // taken and not yet given back
  std::optional<ReadAhead> ahead;  // last: its threads use all of the above
};

TokenLoader::TokenLoader(const Tokens& tokens, LoaderOptions options)
    : TokenLoader(std::vector<WeightedTokens>{{tokens, 1}}, std::move(options)) {}
TokenLoader::TokenLoader(std::vector<WeightedTokens> mixture, LoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(mixture), std::move(options))) {}
TokenLoader::TokenLoader(TokenLoader&&) noexcept = default;
TokenLoader& TokenLoader::operator=(TokenLoader&& other) noexcept {
  if (this == &other) return *this;
  const TokenLoader old(std::move(*this));
  impl_ = std::move(other.impl_);
  return *this;
}
TokenLoader::~TokenLoader() {
  // In a child of fork the threads are not there, and what they were waiting on cannot be destroyed
  // without them: that is left as it is.
  if (impl_ && !impl_->ahead->owned_here()) static_cast<void>(impl_.release());
}

const Batch* TokenLoader::next() { return impl_->next(); }

TokenLoader::Iterator TokenLoader::begin() {
  if (impl_->options.steps != 0 && impl_->turn != 0) impl_->seek(0);
  return Iterator(this);
}

std::uint64_t TokenLoader::step() const { return impl_->step(); }
void TokenLoader::seek(std::uint64_t step) { impl_->seek(step); }
std::uint64_t TokenLoader::epoch_samples() const { return impl_->schedule.epoch_samples(); }
int TokenLoader::buffers() const { return static_cast<int>(impl_->slots.size()); }

LoaderState TokenLoader::state() const {
  const LoaderOptions& options = impl_->options;
  return {impl_->step() * options.batch_size * options.world, options.seed, options.block_size,
          options.order, impl_->describe_data()};
}

void TokenLoader::load(const LoaderState& state) {
  const LoaderState mine = this->state();
  const auto differ = [](const std::string& what, const std::string& theirs,
                         const std::string& ours) {
    throw Error(ErrorKind::kInvalid, "load",
                "the state belongs to other batches: its " + what + " is " + theirs +
                    ", this loader's is " + ours)
        .hint("make the loader with what the state was taken with, or start from step 0");
  };
  if (state.data != mine.data) differ("data", "\"" + state.data + "\"", "\"" + mine.data + "\"");
  if (state.seed != mine.seed) {
    differ("seed", std::to_string(state.seed), std::to_string(mine.seed));
  }
  if (state.block_size != mine.block_size) {
    differ("block_size", std::to_string(state.block_size), std::to_string(mine.block_size));
  }
  if (state.order != mine.order) {
    differ("order", std::string(crop_order_name(state.order)),
           std::string(crop_order_name(mine.order)));
  }
  const std::uint64_t all = impl_->options.batch_size * impl_->options.world;
  if (state.samples % all != 0) {
    throw Error(ErrorKind::kInvalid, "load",
                with_commas(state.samples) +
                    " samples were taken, which is no whole number of steps "
                    "of world * batch_size = " +
                    with_commas(all))
        .hint("choose world and batch_size so that their product divides it");
  }
  impl_->seek(state.samples / all);
}

std::vector<CropOrigin> TokenLoader::explain(std::uint64_t step) const {
  const Layout& layout = impl_->array->layout;
  std::vector<CropOrigin> origins;
  impl_->explaining.for_each(step, [&](const Schedule::Sample& sample) {
    std::uint64_t taken;
    const Piece piece = piece_of(layout, 0, sample.start, 1, nullptr, taken);
    origins.push_back({sample.position, sample.turn.set, sample.crop.epoch, sample.crop.start,
                       layout.segments[piece.file].path, piece.offset});
  });
  return origins;
}

}  // namespace evenkeel
