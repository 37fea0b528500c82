#include "loader/pipeline.h"

#include <algorithm>

#include "base/checked.h"
#include "base/sys.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

Error wrong_use(const std::string& what) { return Error(ErrorKind::kInvalid, "loader", what); }

// Fields of a batch begin at multiples of this, for vector instructions.
constexpr std::uint64_t kFieldAlignment = 64;

constexpr std::uint64_t kFewestAhead = 4;

}  // namespace

std::uint32_t usual_prefetch(std::uint64_t batch_size, std::uint64_t batch_bytes) {
  return static_cast<std::uint32_t>(batches_ahead(batch_size, batch_bytes, kFewestAhead));
}

Pipeline::Pipeline(const Options& options, const std::function<Schedule()>& make_schedule,
                   Assembler& assembler)
    : options_(options),
      assembler_(assembler),
      schedule_(make_schedule()),
      steps_(schedule_.steps()),
      field_bytes_(assembler.field_bytes()),
      explaining_(make_schedule()) {
  for (const std::uint64_t bytes : field_bytes_) {
    field_offsets_.push_back(round_up(buffer_bytes_, kFieldAlignment));
    buffer_bytes_ = field_offsets_.back() + bytes;
  }
  check_memory();
  make_slots();
  ahead_ = std::make_shared<ReadAhead>(
      assembler.streams(), static_cast<BatchMaker&>(*this),
      ReadAhead::Options{.slots = slots_.size(),
                         .end = steps_.number_of(steps_.end_of_loop(0)),
                         .finish_on_own_thread = slots_.size() > 1 && assembler.finishing_is_work(),
                         .second_reads = slots_.size() > 1 && second_plan_share_.bytes() > 0,
                         .merge_gap = {},
                         .budget_limit = plan_limit(),
                         .closed_hint = "create a new loader",
                         .what = "loader",
                         .kind = LiveKind::kLoader,
                         .batch = assembler.describe_batch(),
                         .interrupt = [this] { assembler_.interrupt(); }});
  end_step_ = steps_.end_of_loop(0);
  tell_moved(steps_.step_of(0), steps_.end_of_loop(0));
  pool_->serve(ahead_);
  if (options_.memory.empty()) {
    read_ahead_memory_.emplace(options_.budget, static_cast<ReadAheadMemory::Owner&>(*this));
  }
}

Pipeline::~Pipeline() {
  read_ahead_memory_.reset();
  close();
}

bool Pipeline::close(std::optional<ReadAhead::Clock::time_point> deadline) {
  if (!ahead_->close(deadline) || !assembler_.close_readers(deadline)) return false;
  MutexLock lock(mutex_);
  pool_->close();
  slots_.clear();
  spare_slots_ = 0;
  assembler_.keep_slots(0);
  lent_share_.release();
  return true;
}

void Pipeline::check_memory() const {
  const auto& memory = options_.memory;
  if (!memory.empty() && memory.size() < 1 + std::size_t{options_.keep}) {
    throw wrong_use("memory for at least " + std::to_string(options_.keep + 1) +
                    " batches is needed with keep=" + std::to_string(options_.keep) + "; got " +
                    with_commas(memory.size()));
  }
  for (const auto& batch : memory) {
    bool fits = batch.size() == field_bytes_.size();
    for (std::size_t i = 0; fits && i < batch.size(); ++i)
      fits = batch[i].size() >= field_bytes_[i];
    if (fits) continue;
    std::string needed, got;
    for (const std::uint64_t bytes : field_bytes_) {
      needed += (needed.empty() ? "" : " and ") + with_commas(bytes);
    }
    for (const auto& field : batch) got += (got.empty() ? "" : " and ") + with_commas(field.size());
    throw wrong_use("memory for a batch needs " + needed + " bytes; got " +
                    (got.empty() ? "none" : got));
  }
}

std::uint64_t Pipeline::plan_limit() const {
  return assembler_.streams_read() ? options_.budget.limit() : 0;
}

// For one stream: every stream has its own plan.
std::uint64_t Pipeline::plan_bytes() const {
  const std::uint64_t reads = steps_.options().batch_size * assembler_.reads_of_row();
  return RowFeed::memory(plan_limit(), assembler_.streams_read() ? reads : 0);
}

std::uint64_t Pipeline::most_pieces() const {
  return schedule_.sets() == 1 ? 1 : steps_.options().batch_size;
}

std::uint64_t Pipeline::list_bytes() const {
  const std::uint64_t pieces = assembler_.wants_pieces() ? most_pieces() : 0;
  return steps_.options().batch_size * sizeof(std::uint64_t) + pieces * sizeof(SamplePiece);
}

void Pipeline::add_slot() {
  const Budget& budget = options_.budget;
  const std::uint64_t batch = steps_.options().batch_size;
  // Everything that may fail comes first, so that a failure leaves no part of the slot behind.
  Slot slot;
  slot.rows_share = budget.reserve(list_bytes(), "a batch's sample numbers");
  slot.rows.reserve(batch);
  if (assembler_.wants_pieces()) slot.filling.pieces.reserve(most_pieces());
  slot.filling.slot = slots_.size();
  Reservation share;
  if (options_.memory.empty()) share = budget.reserve(pool_->slot_bytes(), "a batch");
  assembler_.add_slot(budget);
  if (options_.memory.empty()) {
    pool_->add_slot(std::move(share));
  } else {
    pool_->add_slot(options_.memory[slots_.size()].front());
  }
  slots_.push_back(std::move(slot));
}

void Pipeline::make_first_slots(std::size_t least) {
  const Budget& budget = options_.budget;
  plan_share_ = budget.reserve(plan_bytes() * assembler_.stream_count(), "plans of batches");
  if (options_.lends && options_.memory.empty()) {
    lent_share_ = budget.reserve(buffer_bytes_, "a batch that the caller holds");
  }
  while (slots_.size() < least) add_slot();
}

// The default takes at most a quarter of what is left of the budget, but never less than
// kFewestAhead.
std::size_t Pipeline::prefetch() const {
  if (options_.prefetch) return *options_.prefetch;
  if (!assembler_.streams_read()) return kFewestAhead;
  const std::uint64_t usual = usual_prefetch(steps_.options().batch_size, buffer_bytes_);
  const std::uint64_t fit = options_.budget.left() / 4 / slot_bytes();
  return std::clamp(fit, kFewestAhead, usual);
}

void Pipeline::make_slots() {
  const Budget& budget = options_.budget;
  const std::size_t least = least_slots();
  std::size_t most = least + prefetch();
  if (!options_.memory.empty()) most = std::min(most, options_.memory.size());
  const std::uint64_t each =
      assembler_.slot_bytes() + (options_.memory.empty() ? buffer_bytes_ : 0);
  for (;;) {
    pool_ = std::make_shared<LendingPool>(buffer_bytes_, "a batch");
    try {
      make_first_slots(least);
      break;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBudget) throw;
      slots_.clear();
      assembler_.keep_slots(0);
      pool_.reset();
      lent_share_.release();
      plan_share_.release();
      const std::uint64_t batches = each * (least + (options_.lends ? 1 : 0));
      if (assembler_.make_room(plan_bytes() * assembler_.stream_count() + batches)) {
        continue;
      }
    }
    throw Error(ErrorKind::kBudget, "loader",
                "batches of " + assembler_.describe_batch() + " need " + with_commas(each) +
                    " bytes each, and at least " +
                    std::to_string(least + (options_.lends ? 1 : 0)) + " of them; " +
                    with_commas(budget.left()) + " bytes are left of the budget of " +
                    budget.describe())
        .hint("raise the budget, or take a smaller batch_size");
  }
  // If not all fit, read fewer batches ahead; buffers() returns how many.
  try {
    while (slots_.size() < most) add_slot();
    second_plan_share_ = budget.reserve(plan_bytes(), "plans of batches");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;
  }
  pool_->allocate();
  slots_made_ = slots_.size();
  spare_slots_ = slots_.size() - std::min(slots_.size(), std::max<std::size_t>(2, least));
}

// A lower bound: an assembler may use more, because its pages are not full.
std::uint64_t Pipeline::slot_bytes() const {
  return round_up(buffer_bytes_, sys::page_size()) + list_bytes() + assembler_.slot_bytes();
}

// At least two slots remain, so that one is read while the other is used.
std::uint64_t Pipeline::spare_bytes() { return owned_here() ? spare_slots_ * slot_bytes() : 0; }

// Batches that were read ahead are read again, as far as there is still room.
void Pipeline::give_back(std::uint64_t bytes) {
  if (!owned_here()) return;
  const std::size_t fewer = divide_up(bytes, slot_bytes());
  const auto free_slots = [this](std::size_t count, std::span<const std::uint64_t> taken) {
    pool_->keep_slots(count, taken);
    assembler_.keep_slots(count);
    slots_.resize(count);
    spare_slots_ -= slots_made_ - count;
    slots_made_ = count;
    tell_moved(steps_.step_of(ahead_->position()), steps_.step_of(ahead_->end()));
  };
  ahead_->keep_slots(slots_made_ - std::min<std::size_t>(fewer, spare_slots_), free_slots);
}

void Pipeline::require_owner() const {
  if (owned_here()) return;
  throw Error(ErrorKind::kClosed, "loader", "this loader was made before a fork")
      .hint("create a loader in the child; the tokens or arrays themselves may be used there");
}

void Pipeline::find_fields(std::byte* first, std::vector<std::byte*>& fields) const {
  fields.clear();
  for (const auto& batch : options_.memory) {
    if (batch.front().data() != first) continue;
    for (const auto& field : batch) fields.push_back(field.data());
    return;
  }
  for (const std::uint64_t offset : field_offsets_) fields.push_back(first + offset);
}

void Pipeline::tell_moved(std::uint64_t step, std::uint64_t end_step) {
  first_step_ = step;
  if (!assembler_.wants_pieces()) return;
  assembler_.moved(schedule_.positions_at(step), schedule_.positions_at(end_step));
}

// Passes over the steps that other workers have taken since this one's last step.
void Pipeline::pass_before(std::uint64_t step) {
  const std::uint64_t stride = steps_.options().workers.stride;
  if (stride == 1 || step == first_step_) return;
  const auto first = schedule_.positions_at(step - stride + 1);
  assembler_.pass(first, schedule_.positions_at(step));
}

void Pipeline::begin(std::size_t slot, std::uint64_t number) {
  Slot& mine = slots_[slot];
  const std::uint64_t step = steps_.step_of(number);
  mine.rows.resize(schedule_.count(step));
  if (assembler_.wants_rows()) schedule_.fill(step, mine.rows);
  if (assembler_.wants_pieces()) {
    pass_before(step);
    schedule_.pieces(step, mine.filling.pieces);
  }
  mine.filling.step = step;
  mine.filling.rows = mine.rows;
  find_fields(pool_->buffer(slot), mine.filling.fields);
}

Job& Pipeline::prepare_stream(std::size_t slot, std::uint64_t, std::size_t stream) {
  return assembler_.job(slots_[slot].filling, stream);
}

void Pipeline::finish(std::size_t slot, std::uint64_t) { assembler_.finish(slots_[slot].filling); }

ReadAhead::Use Pipeline::taking(Lent& lent) {
  return [this, &lent](std::size_t slot, std::uint64_t number) {
    const Assembler::Filling& filling = slots_[slot].filling;
    lent.step = steps_.step_of(number);
    lent.rows = filling.rows.size();
    lent.fields.assign(filling.fields.begin(), filling.fields.end());
    assembler_.taken(filling, lent);
    lent.loan = pool_->lend(slot, number);
  };
}

const Pipeline::Lent* Pipeline::next() {
  require_owner();
  while (held_.size() > options_.keep) held_.pop_front();
  Lent lent;
  if (ahead_->take(taking(lent)) == ReadAhead::Outcome::kEnd) return nullptr;
  held_.push_back(std::move(lent));
  return &held_.back();
}

ReadAhead::Outcome Pipeline::lend(Lent& lent, ReadAhead::Clock::time_point deadline) {
  require_owner();
  if (!pool_->replace_lent()) {
    throw wrong_use("all memory that was passed in for batches is in use")
        .hint("release a batch before you take the next one");
  }
  const ReadAhead::Outcome outcome = ahead_->take(taking(lent), deadline);
  if (outcome != ReadAhead::Outcome::kTaken) return outcome;
  std::vector<std::weak_ptr<ExtraMemory>> before(lent.keep.begin(), lent.keep.end());
  {
    MutexLock lock(mutex_);
    before.swap(kept_);
  }
  for (const auto& one : before) {
    if (const auto memory = one.lock()) memory->share.release();
  }
  return outcome;
}

std::uint64_t Pipeline::step() const {
  require_owner();
  return steps_.step_of(ahead_->position());
}

void Pipeline::seek(std::uint64_t step) {
  require_owner();
  steps_.require_step("seek", step);
  move(steps_.number_of(step), steps_.end_of_loop(step));
}

void Pipeline::move(std::uint64_t number, std::uint64_t end_step,
                    const std::function<void()>& while_stopped, std::optional<std::uint64_t> from) {
  if (!held_.empty()) held_.clear();
  ahead_->seek(
      number, steps_.number_of(end_step),
      [&] {
        try {
          if (while_stopped) while_stopped();
        } catch (...) {
          tell_moved(steps_.step_of(ahead_->position()), steps_.step_of(ahead_->end()));
          throw;
        }
        end_step_ = end_step;
        tell_moved(steps_.step_of(number), end_step);
      },
      from);
}

void Pipeline::seek_samples(std::uint64_t samples, const std::function<void()>& while_stopped) {
  require_owner();
  const auto step = steps_.step_at(samples);
  if (step) {
    steps_.require_step("load", *step);
    return move(steps_.number_of(*step), steps_.end_of_loop(*step), while_stopped);
  }
  throw Error(ErrorKind::kInvalid, "load",
              "the checkpoint has " + with_commas(samples) +
                  " samples, which is not divisible by world x batch_size = " +
                  with_commas(steps_.samples_of_step()))
      .hint("choose world and batch_size so that their product divides it");
}

void Pipeline::begin_loop(bool restart) {
  require_owner();
  if (steps_.loop_steps() == 0) return;
  const std::uint64_t position = ahead_->position();
  const bool ended = position >= ahead_->end();
  if (steps_.options().epochs == 0) {
    if (ended || (restart && position != 0)) move(0, steps_.end_of_loop(0), {}, position);
  } else if (ended) {
    const std::uint64_t end = end_step_ + steps_.loop_steps();
    move(position, std::min(end, steps_.last_step() + 1), {}, position);
  }
}

void Pipeline::explain(std::uint64_t step,
                       const std::function<void(const Schedule::Sample&)>& use) const {
  steps_.require_step("explain", step);
  MutexLock lock(mutex_);
  explaining_.for_each(step, use);
}

}  // namespace evenkeel
