#include "tokens/loader.h"

#include <algorithm>

#include "array/row_extents.h"
#include "base/checked.h"
#include "tokens/widen.h"

namespace evenkeel {
namespace {

Error wrong(const std::string& what) { return Error(ErrorKind::kInvalid, "loader", what); }

// "rank must be 0 or 1 for world=2; got 2"
Error out_of_range(const std::string& name, std::uint64_t got, const std::string& count_name,
                   std::uint64_t count) {
  const std::string allowed = count == 1   ? "0"
                              : count == 2 ? "0 or 1"
                                           : "0 to " + with_commas(count - 1);
  return wrong(name + " must be " + allowed + " for " + count_name + "=" + with_commas(count) +
               "; got " + with_commas(got));
}

DType output_type(const LoaderOptions& options, DType stored) {
  const DType out = options.dtype.value_or(stored);
  if (can_widen(stored, out)) return out;
  throw wrong("tokens stored as " + stored.name() + " cannot be had as " + out.name())
      .hint("ask for int64, int32, or as stored");
}

}  // namespace

TokenLoader::Impl::Impl(std::vector<WeightedTokens> sets, LoaderOptions options, bool lends)
    : options_(check(std::move(options), sets)),
      mixture_(std::move(sets)),
      array_(mixture_.size() == 1 ? TokenInternals::of(mixture_[0].tokens).array : open_joined()),
      engine_(array_->engine()),
      out_type_(output_type(options_, array_->layout.dtype)),
      schedule_(mixture_, options_),
      loop_steps_(steps_of_loop()),
      explaining_(mixture_, options_) {
  make_buffers(lends);
  ahead_ = std::make_shared<ReadAhead>(
      array_->layout, *engine_, *this,
      ReadAhead::Options{.slots = buffers_.size(),
                         .end = number_of(end_of_loop(0)),
                         .finish_on_own_thread = buffers_.size() > 1,
                         .second_reads = buffers_.size() > 1 && second_plan_share_.bytes() > 0,
                         .merge_gap = {},
                         .budget_limit = array_->budget.limit(),
                         .cache = array_->cache(),
                         .closed_hint = "create a new loader",
                         .what = "loader"});
  pool_->serve(ahead_);
}

TokenLoader::Impl::~Impl() { close(); }

bool TokenLoader::Impl::close(std::optional<ReadAhead::Clock::time_point> deadline) {
  if (!ahead_->close(deadline)) return false;
  MutexLock lock(mutex_);
  pool_->close();
  buffers_.clear();
  lent_share_.release();
  return true;
}

LoaderOptions TokenLoader::Impl::check(LoaderOptions options,
                                       const std::vector<WeightedTokens>& sets) {
  if (sets.empty()) throw wrong("no tokens were given");
  if (options.batch_size == 0) throw wrong("batch_size must be at least 1; got 0");
  if (options.world == 0) throw wrong("world must be at least 1; got 0");
  if (options.rank >= options.world) {
    throw out_of_range("rank", options.rank, "world", options.world);
  }
  const LoaderOptions::Workers& workers = options.workers;
  if (workers.stride == 0) throw wrong("stride must be at least 1; got 0");
  if (workers.phase >= workers.stride) {
    throw out_of_range("phase", workers.phase, "stride", workers.stride);
  }
  if (!checked_mul(options.batch_size, options.world)) {
    throw wrong("world x batch_size must be below 2^64; got " + with_commas(options.world) + " x " +
                with_commas(options.batch_size));
  }
  const LoaderOptions::Buffers& buffers = options.buffers;
  if (!buffers.memory.empty() && buffers.memory.size() < 1 + std::size_t{buffers.keep}) {
    throw wrong("memory for at least " + std::to_string(buffers.keep + 1) +
                " batches is needed with keep=" + std::to_string(buffers.keep) + "; got " +
                with_commas(buffers.memory.size()));
  }
  if (options.epochs > 0) {
    if (options.steps > 0) throw wrong("steps and epochs exclude each other; got both");
    if (options.order == CropOrder::kRandom) {
      throw wrong("order \"random\" has no epochs").hint("give steps instead of epochs");
    }
    if (sets.size() > 1) {
      throw wrong("a mixture of " + std::to_string(sets.size()) + " sets has no common epoch")
          .hint("give steps instead of epochs");
    }
  }
  return options;
}

std::uint64_t TokenLoader::Impl::steps_of_loop() const {
  if (options_.epochs == 0) return options_.steps;
  const auto samples = checked_mul(options_.epochs, schedule_.epoch_samples());
  if (!samples) throw wrong(with_commas(options_.epochs) + " epochs have more than 2^64 samples");
  const std::uint64_t steps = *samples / samples_of_step();
  if (steps > 0) return steps;
  throw wrong(
      "epochs=" + with_commas(options_.epochs) + " has " + with_commas(*samples) +
      " samples, less than one step of world x batch_size = " + with_commas(samples_of_step()))
      .hint("take a smaller batch_size, or more epochs");
}

std::shared_ptr<Array::Impl> TokenLoader::Impl::open_joined() const {
  const Tokens::Impl& first = TokenInternals::of(mixture_.front().tokens);
  return std::make_shared<Array::Impl>(
      joined_layout(mixture_),
      ArrayOptions{.budget = first.array->budget, .engine = first.engine, .cache = first.cache});
}

std::uint64_t TokenLoader::Impl::stored_bytes() const {
  return options_.batch_size * (options_.block_size + 1) * array_->layout.dtype.size;
}
std::uint64_t TokenLoader::Impl::out_bytes() const {
  return options_.batch_size * options_.block_size * out_type_.size;
}
std::uint64_t TokenLoader::Impl::y_offset() const { return round_up(out_bytes(), 64); }

std::byte* TokenLoader::Impl::y_of(std::byte* x) const {
  for (const BatchMemory& memory : options_.buffers.memory) {
    if (memory.x.data() == x) return memory.y.data();
  }
  return x + y_offset();
}

void TokenLoader::Impl::add_buffer() {
  const Budget& budget = array_->budget;
  Buffer buffer;
  buffer.stored = PageBuffer(budget, stored_bytes(), "a batch's tokens as stored");
  buffer.starts_share = budget.reserve(options_.batch_size * 8, "a batch's starts");
  buffer.starts.reserve(options_.batch_size);
  const std::vector<BatchMemory>& memory = options_.buffers.memory;
  if (memory.empty()) {
    pool_->add_slot(PageBuffer(budget, y_offset() + out_bytes(), "a batch's x and y"));
  } else {
    pool_->add_slot(memory[buffers_.size()].x);
  }
  buffers_.push_back(std::move(buffer));
}

void TokenLoader::Impl::make_buffers(bool lends) {
  const auto tokens = checked_mul(options_.batch_size, options_.block_size + 1);
  if (!tokens || !checked_mul(*tokens, 32)) {
    throw wrong("batch_size x block_size is too large: " + with_commas(options_.batch_size) +
                " x " + with_commas(options_.block_size));
  }
  const LoaderOptions::Buffers& given = options_.buffers;
  for (const BatchMemory& memory : given.memory) {
    if (memory.x.size() >= out_bytes() && memory.y.size() >= out_bytes()) continue;
    throw wrong("memory for a batch needs " + with_commas(out_bytes()) +
                " bytes for x and for y; got " + with_commas(memory.x.size()) + " and " +
                with_commas(memory.y.size()));
  }
  const Budget& budget = array_->budget;
  const std::size_t least = 1 + std::size_t{given.keep};
  std::size_t most = least + options_.prefetch;
  if (!given.memory.empty()) most = std::min(most, given.memory.size());
  pool_ = std::make_shared<LendingPool>(y_offset() + out_bytes(), "a batch's x and y");
  buffers_.reserve(most);
  try {
    plan_share_ =
        budget.reserve(RowFeed::memory(budget.limit(), options_.batch_size), "plans of batches");
    if (lends && given.memory.empty()) {
      lent_share_ = budget.reserve(y_offset() + out_bytes(), "a batch that the caller holds");
    }
    while (buffers_.size() < least) add_buffer();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;
    const std::uint64_t needed = stored_bytes() + (given.memory.empty() ? 2 * out_bytes() : 0);
    throw Error(ErrorKind::kBudget, "loader",
                "batches of " + with_commas(options_.batch_size) + " x " +
                    with_commas(options_.block_size) + " tokens need " + with_commas(needed) +
                    " bytes each, and at least " + std::to_string(least + (lends ? 1 : 0)) +
                    " of them; of the budget of " + budget.describe() + " " +
                    with_commas(budget.left()) + " bytes are left")
        .hint("raise the budget, or take a smaller batch_size");
  }
  // Fewer ahead rather than none at all; buffers() says how many.
  try {
    while (buffers_.size() < most) add_buffer();
    second_plan_share_ =
        budget.reserve(RowFeed::memory(budget.limit(), options_.batch_size), "plans of batches");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;
  }
  buffers_made_ = static_cast<int>(buffers_.size());
}

// Draws are counted in 63 bits; see uniform_draw. All samples of this step, and of the steps that
// other workers take beside it, can be counted.
std::uint64_t TokenLoader::Impl::last_step() const {
  const std::uint64_t steps = (std::uint64_t{1} << 63) / samples_of_step();
  return steps > options_.workers.stride + 1 ? steps - options_.workers.stride - 1 : 0;
}

std::uint64_t TokenLoader::Impl::number_of(std::uint64_t step) const {
  const auto [stride, phase] = options_.workers;
  return step <= phase ? 0 : (step - phase - 1) / stride + 1;
}

std::uint64_t TokenLoader::Impl::end_of_loop(std::uint64_t step) const {
  if (loop_steps_ == 0) return last_step() + 1;
  if (options_.epochs == 0) return loop_steps_;
  const std::uint64_t loops = std::max<std::uint64_t>(1, (step + loop_steps_ - 1) / loop_steps_);
  return std::min(loops * loop_steps_, last_step() + 1);
}

void TokenLoader::Impl::require_owner() const {
  if (owned_here()) return;
  throw Error(ErrorKind::kClosed, "loader", "this loader was made before a fork")
      .hint("create a loader in the child; the tokens themselves may be used there");
}

void TokenLoader::Impl::require_step(const char* operation, std::uint64_t step) const {
  if (step <= last_step()) return;
  throw Error(
      ErrorKind::kInvalid, operation,
      "the last step is " + with_commas(last_step()) +
          ", because samples are counted in 63 bits and a step takes world x batch_size = " +
          with_commas(samples_of_step()) + "; got " + with_commas(step));
}

Job& TokenLoader::Impl::prepare(std::size_t slot, std::uint64_t number) {
  Buffer& buffer = buffers_[slot];
  buffer.starts.clear();
  schedule_.for_each(step_of(number), [&](const Schedule::Sample& sample) {
    buffer.starts.push_back(sample.start);
  });
  buffer.job = Job{};
  buffer.job.starts = buffer.starts;
  buffer.job.count = options_.block_size + 1;
  buffer.job.out = buffer.stored.data();
  buffer.x = pool_->buffer(slot);
  buffer.y = y_of(buffer.x);
  return buffer.job;
}

void TokenLoader::Impl::finish(std::size_t slot, std::uint64_t) {
  const Buffer& buffer = buffers_[slot];
  const std::uint64_t stored_row = (options_.block_size + 1) * array_->layout.dtype.size;
  const std::uint64_t out_row = options_.block_size * out_type_.size;
  bool fits = true;
  for (std::uint64_t i = 0; i < options_.batch_size; ++i) {
    fits &=
        widen_xy(array_->layout.dtype, buffer.stored.data() + i * stored_row, options_.block_size,
                 out_type_, buffer.x + i * out_row, buffer.y + i * out_row);
  }
  if (!fits) throw token_too_large(array_->layout, out_type_);
}

Batch TokenLoader::Impl::batch_of(const Buffer& buffer, std::uint64_t number) const {
  Batch batch;
  batch.step_ = step_of(number);
  batch.rows_ = options_.batch_size;
  batch.columns_ = options_.block_size;
  batch.dtype_ = out_type_;
  batch.x_ = buffer.x;
  batch.y_ = buffer.y;
  return batch;
}

const Batch* TokenLoader::Impl::next() {
  require_owner();
  while (held_.size() > options_.buffers.keep) held_.pop_front();
  Lent lent;
  const auto take = [this, &lent](std::size_t slot, std::uint64_t number) {
    lent = {batch_of(buffers_[slot], number), pool_->lend(slot, number)};
  };
  if (ahead_->take(take) == ReadAhead::Outcome::kEnd) return nullptr;
  held_.push_back(std::move(lent));
  return &held_.back().batch;
}

ReadAhead::Outcome TokenLoader::Impl::lend(Lent& lent, ReadAhead::Clock::time_point deadline) {
  require_owner();
  if (!pool_->replace_lent()) {
    throw wrong("all memory that was given for batches is in use")
        .hint("let go of a batch before you take the next one");
  }
  const auto take = [this, &lent](std::size_t slot, std::uint64_t number) {
    lent = {batch_of(buffers_[slot], number), pool_->lend(slot, number)};
  };
  return ahead_->take(take, deadline);
}

void TokenLoader::Impl::seek(std::uint64_t step) {
  require_owner();
  require_step("seek", step);
  if (!held_.empty()) held_.clear();
  ahead_->seek(number_of(step), number_of(end_of_loop(step)));
}

void TokenLoader::Impl::begin_loop(bool anew) {
  require_owner();
  if (loop_steps_ == 0) return;
  const std::uint64_t position = ahead_->position();
  const bool ended = position >= ahead_->end();
  if (options_.epochs == 0) {
    if (ended || (anew && position != 0)) seek(0);
  } else if (ended) {
    const std::uint64_t end = end_of_loop(step());
    if (!held_.empty()) held_.clear();
    ahead_->seek(position, number_of(std::min(end + loop_steps_, last_step() + 1)));
  }
}

std::uint64_t TokenLoader::Impl::size() const { return number_of(loop_steps_); }

std::string TokenLoader::Impl::describe_data() const {
  std::string text;
  const std::vector<std::uint64_t>& shares = schedule_.mixture().shares();
  for (std::size_t i = 0; i < mixture_.size(); ++i) {
    if (i > 0) text += " | ";
    if (mixture_.size() > 1) {
      text += "share=" + std::to_string(shares[i]) + "/" +
              std::to_string(schedule_.mixture().period()) + " ";
    }
    text += mixture_[i].tokens.fingerprint();
  }
  return text;
}

LoaderState TokenLoader::Impl::state_at(std::uint64_t step) const {
  return {step * samples_of_step(), options_.seed, options_.block_size, options_.order,
          describe_data()};
}

void TokenLoader::Impl::load(const LoaderState& state) {
  const LoaderState mine = state_at(0);
  const auto differ = [](const std::string& what, const std::string& theirs,
                         const std::string& ours) {
    throw Error(ErrorKind::kInvalid, "load",
                "the state belongs to other batches: its " + what + " is " + theirs +
                    ", this loader's is " + ours)
        .hint("create the loader with the options of the state, or start from step 0");
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
  if (state.samples % samples_of_step() != 0) {
    throw Error(ErrorKind::kInvalid, "load",
                "the checkpoint has " + with_commas(state.samples) +
                    " samples, which is not divisible by world x batch_size = " +
                    with_commas(samples_of_step()))
        .hint("choose world and batch_size so that their product divides it");
  }
  seek(state.samples / samples_of_step());
}

std::vector<CropOrigin> TokenLoader::Impl::explain(std::uint64_t step) const {
  require_step("explain", step);
  const Layout& layout = array_->layout;
  std::vector<CropOrigin> origins;
  MutexLock lock(mutex_);
  explaining_.for_each(step, [&](const Schedule::Sample& sample) {
    std::uint64_t taken;
    const Piece piece = piece_of(layout, 0, sample.start, 1, nullptr, taken);
    origins.push_back({sample.position, sample.draw.set, sample.crop.epoch, sample.crop.start,
                       layout.segments[piece.file].path, piece.offset});
  });
  return origins;
}

TokenLoader::TokenLoader(const Tokens& tokens, LoaderOptions options)
    : TokenLoader(std::vector<WeightedTokens>{{tokens, 1}}, std::move(options)) {}
TokenLoader::TokenLoader(std::vector<WeightedTokens> mixture, LoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(mixture), std::move(options), false)) {}
TokenLoader::TokenLoader(TokenLoader&&) noexcept = default;
TokenLoader& TokenLoader::operator=(TokenLoader&& other) noexcept {
  if (this == &other) return *this;
  const TokenLoader old(std::move(*this));
  impl_ = std::move(other.impl_);
  return *this;
}
TokenLoader::~TokenLoader() {
  // In a child of fork the threads do not exist, and their mutexes may be held for ever: the memory
  // is left as it is.
  if (impl_ && !impl_->owned_here()) static_cast<void>(impl_.release());
}

const Batch* TokenLoader::next() { return impl_->next(); }

TokenLoader::Iterator TokenLoader::begin() {
  impl_->begin_loop(true);
  return Iterator(this);
}

std::uint64_t TokenLoader::step() const { return impl_->step(); }
void TokenLoader::seek(std::uint64_t step) { impl_->seek(step); }
std::uint64_t TokenLoader::size() const { return impl_->size(); }
std::uint64_t TokenLoader::epoch_samples() const { return impl_->epoch_samples(); }
int TokenLoader::buffers() const { return impl_->buffers(); }
ArrayStats TokenLoader::stats() const { return impl_->stats(); }
LoaderState TokenLoader::state() const { return impl_->state_at(impl_->step()); }
void TokenLoader::load(const LoaderState& state) { impl_->load(state); }
std::vector<CropOrigin> TokenLoader::explain(std::uint64_t step) const {
  return impl_->explain(step);
}
void TokenLoader::close() {
  if (impl_->owned_here()) impl_->close();
}

}  // namespace evenkeel
