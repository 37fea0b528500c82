#include "tokens/loader.h"

#include <utility>

#include "base/checked.h"
#include "loader/data.h"
#include "tokens/crop_order.h"
#include "tokens/widen.h"

namespace evenkeel {
namespace {

Error wrong(const std::string& what) { return Error(ErrorKind::kInvalid, "loader", what); }

DType output_type(const LoaderOptions& options, DType stored) {
  const DType out = options.dtype.value_or(stored);
  if (can_widen(stored, out)) return out;
  throw wrong("tokens stored as " + stored.name() + " cannot be returned as " + out.name())
      .hint("use int64, int32 or the stored dtype");
}

}  // namespace

TokenLoader::Impl::Impl(std::vector<WeightedTokens> sets, LoaderOptions options, bool lends)
    : options_(check(std::move(options), sets)),
      mixture_(std::move(sets)),
      array_(mixture_.size() == 1 ? TokenInternals::of(mixture_[0].tokens).array : open_joined()),
      out_type_(output_type(options_, array_->layout.dtype)),
      megatron_(make_megatron()),
      documents_(make_documents()),
      sets_(make_sets()),
      mixed_(make_mixture()),
      steps_(make_steps()),
      windows_(steps_, sets_),
      pipeline_(
          pipeline_options(lends), [this] { return make_schedule(); }, *this) {}

std::shared_ptr<Array::Impl> TokenLoader::Impl::open_joined() const {
  const Tokens::Impl& first = TokenInternals::of(mixture_.front().tokens);
  std::vector<const Layout*> layouts;
  for (const WeightedTokens& set : mixture_) {
    layouts.push_back(&TokenInternals::of(set.tokens).layout());
  }
  return std::make_shared<Array::Impl>(
      joined_layout(layouts, "tokens"),
      ArrayOptions{.budget = first.array->budget, .engine = first.engine, .cache = first.cache});
}

std::shared_ptr<const MegatronDataset> TokenLoader::Impl::make_megatron() const {
  if (options_.order != CropOrder::kMegatron) return nullptr;
  MegatronOptions megatron = options_.megatron;
  if (megatron.samples == 0) {
    const auto samples = checked_mul(options_.steps, options_.batch_size * options_.world);
    if (!samples) throw wrong("steps x world x batch_size must be below 2^64");
    megatron.samples = *samples;
  }
  return std::make_shared<MegatronDataset>(mixture_, options_.block_size, megatron, options_.seed);
}

std::unique_ptr<DocumentBatches> TokenLoader::Impl::make_documents() const {
  if (options_.documents.mode == DocumentMode::kNone) return nullptr;
  return std::make_unique<DocumentBatches>(mixture_, options_, array_->layout, array_->budget);
}

// For kBlocks, where the sets of a mixture take turns.
std::optional<StagedMixture> TokenLoader::Impl::make_mixture() const {
  if (options_.order != CropOrder::kBlocks) return std::nullopt;
  const std::uint64_t turn = mixture_.size() > 1 ? options_.blocks.streams : 1;
  std::vector<StagedMixture::Set> sets;
  for (std::size_t i = 0; i < mixture_.size(); ++i) {
    const std::uint64_t crops = sets_[i].shape.samples;  // an epoch has whole turns of them
    const bool in_pieces = documents_ && documents_->in_pieces();
    sets.push_back({mixture_[i].weight, in_pieces ? documents_->rows(i) : crops - crops % turn});
  }
  return StagedMixture(sets, options_.mixture, options_.batch_size * options_.world, turn);
}

// For kBlocks and kMegatron; the steps of other orders are made with their schedule. With kBlocks a
// rank has the same streams in every epoch, so an epoch ends with a whole step.
Steps TokenLoader::Impl::make_steps() const {
  if (megatron_) {
    return {ending_after(megatron_->size(), steps_of(options_), "more samples"), 0,
            Steps::Ends::kNone};
  }
  if (options_.order != CropOrder::kBlocks) return {{}, 0, Steps::Ends::kNone};
  std::uint64_t epoch =
      crops_of_epoch(mixture_.front().tokens.size(), options_.block_size, options_.order);
  Steps::Ends ends = Steps::Ends::kDrop;
  if (documents_ && documents_->in_pieces()) {
    epoch = documents_->rows(0);
    ends = documents_->whole() ? Steps::Ends::kShort : Steps::Ends::kNone;
  }
  return {ending_with(*mixed_, steps_of(options_)), epoch,
          mixture_.size() == 1 ? ends : Steps::Ends::kNone, Steps::Shares::kInterleaved};
}

// Crops never cross from one set to the next.
std::vector<LoaderWindows::Set> TokenLoader::Impl::make_sets() const {
  std::vector<LoaderWindows::Set> sets;
  std::uint64_t first_token = 0;
  for (std::size_t i = 0; i < mixture_.size(); ++i) {
    Order order;
    const std::uint64_t seed = order.seed = seed_of_set(options_.seed, i);
    SampleShape shape;
    if (options_.order == CropOrder::kBlocks && documents_ && documents_->in_pieces()) {
      order.blocks = options_.blocks;  // for states: these orders are not of kind kBlocks
    } else if (options_.order == CropOrder::kBlocks) {
      order.kind = OrderKind::kBlocks;
      order.blocks = options_.blocks;
      shape = {
          .samples = crops_of_epoch(mixture_[i].tokens.size(), options_.block_size, options_.order),
          .first_row = first_token,
          .rows = options_.block_size,
          .overlap = 1,
          .phase = [seed, size = options_.block_size](std::uint64_t epoch) {
            return crop_phase(seed, size, epoch);
          }};
    } else {
      order.blocks = {0, 0, 0};
    }
    first_token += mixture_[i].tokens.size();
    sets.push_back(
        {std::make_shared<SharedOrder>(order), std::move(shape), repeat_of(options_.mixture, i)});
  }
  return sets;
}

Schedule TokenLoader::Impl::make_schedule() {
  using Use = DocumentBatches::OrderUse;
  const Use use = scheduled_ ? Use::kExplaining : Use::kReading;
  scheduled_ = true;
  std::vector<ScheduledSet> sets;
  if (megatron_) {
    sets.push_back({1, megatron_->rows(), std::make_unique<MegatronOrder>(megatron_)});
    return {std::move(sets), steps_, options_.seed, StagedMixture({{1, 0}}, {}, 1)};
  }
  for (std::size_t i = 0; i < mixture_.size(); ++i) {
    const std::uint64_t rows = documents_ ? documents_->rows(i) : mixture_[i].tokens.size();
    sets.push_back({mixture_[i].weight, rows, make_order(i, use)});
  }
  const StepOptions taken = steps_of(options_);
  if (!mixed_) {
    mixed_.emplace(mixture_of(sets, options_.mixture, taken.batch_size * taken.world));
  }
  if (options_.order == CropOrder::kBlocks) {
    return {std::move(sets), steps_, options_.seed, *mixed_};
  }
  const Steps steps = steps_of_schedule(sets);
  return {std::move(sets), steps, options_.seed, *mixed_};
}

std::unique_ptr<SampleOrder> TokenLoader::Impl::make_order(std::size_t set,
                                                           DocumentBatches::OrderUse use) {
  const std::uint64_t seed = seed_of_set(options_.seed, set);
  std::unique_ptr<SampleOrder> crops;
  if (documents_ && documents_->in_pieces()) return documents_->order(set, use, nullptr);
  if (options_.order == CropOrder::kBlocks) {
    const auto& [order, shape, repeat] = sets_[set];
    crops = std::make_unique<BlockCrops>(shape.samples, order, mixture_.size() > 1,
                                         options_.block_size, seed);
  } else {
    crops = std::make_unique<CropSequence>(mixture_[set].tokens.size(), options_.block_size,
                                           options_.order, seed);
  }
  return documents_ ? documents_->order(set, use, std::move(crops)) : std::move(crops);
}

// Whole documents of one set come in buckets of similar length. Buckets begin with steps, so the
// last step of an epoch is short.
Steps TokenLoader::Impl::steps_of_schedule(const std::vector<ScheduledSet>& sets) const {
  const std::uint64_t epoch = sets.front().order->epoch_samples();
  const bool short_end = documents_ && documents_->whole() && sets.size() == 1 && epoch > 0;
  return {ending_with(*mixed_, steps_of(options_)), epoch,
          short_end ? Steps::Ends::kShort : Steps::Ends::kNone};
}

// Opens the windows before the pipeline takes memory for batches, because they need more.
Pipeline::Options TokenLoader::Impl::pipeline_options(bool lends) {
  open_windows();
  Pipeline::Options options{.prefetch = options_.prefetch,
                            .keep = options_.buffers.keep,
                            .lends = lends,
                            .budget = array_->budget};
  for (const BatchMemory& memory : options_.buffers.memory) {
    options.memory.push_back({memory.x, memory.y});
    if (documents_) options.memory.back().push_back(memory.documents);
  }
  return options;
}

std::uint64_t TokenLoader::Impl::stored_bytes() const {
  const std::uint64_t row = documents_ ? documents_->stored_row() : options_.block_size + 1;
  return options_.batch_size * row * array_->layout.dtype.size;
}
std::uint64_t TokenLoader::Impl::crop_list_bytes() const {
  return windows_.any() ? options_.batch_size * sizeof(std::uint64_t) : 0;
}
std::uint64_t TokenLoader::Impl::out_bytes() const {
  return options_.batch_size * options_.block_size * out_type_.size;
}

std::vector<std::uint64_t> TokenLoader::Impl::field_bytes() const {
  std::vector<std::uint64_t> bytes{out_bytes(), out_bytes()};
  if (documents_) bytes.push_back(documents_->layout().bytes);
  return bytes;
}

std::uint64_t TokenLoader::Impl::slot_bytes() const {
  return stored_bytes() + runs_bytes() + crop_list_bytes() +
         (documents_ ? documents_->slot_bytes() : 0);
}

void TokenLoader::Impl::keep_slots(std::size_t count) {
  stored_.resize(std::min(count, stored_.size()));
  if (documents_) documents_->keep_slots(count);
}

std::string TokenLoader::Impl::describe_batch() const {
  return with_commas(options_.batch_size) + " x " + with_commas(options_.block_size) + " tokens";
}

std::uint64_t TokenLoader::Impl::runs_bytes() const {
  return megatron_ ? options_.batch_size * megatron_->most_runs() * sizeof(JobRun) : 0;
}

void TokenLoader::Impl::add_slot(const Budget& budget) {
  Stored stored;
  stored.tokens = PageBuffer(budget, stored_bytes(), "a batch's tokens as stored");
  stored.crops_share = budget.reserve(crop_list_bytes(), "a batch's crop numbers");
  if (windows_.any()) stored.crops.reserve(options_.batch_size);
  if (megatron_) {
    stored.runs_share = budget.reserve(runs_bytes(), "the documents of a batch");
    stored.runs.reserve(options_.batch_size * megatron_->most_runs());
  }
  if (documents_) documents_->add_slot(budget);
  stored_.push_back(std::move(stored));
}

// If the batches do not fit beside the pages of tokens that are mapped because they fit the budget,
// the tokens are read instead.
bool TokenLoader::Impl::make_room(std::uint64_t bytes) {
  try {
    if (!array_->stop_mapping(bytes)) return false;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kBudget) throw;
    return false;
  }
  open_windows();
  return true;
}

std::vector<ReadStream> TokenLoader::Impl::streams() {
  engine_ = array_->engine();
  if (windowed()) return {{array_->layout, idle_, {}, {}}};
  std::vector<ReadStream> streams{{array_->layout, *engine_, {}, {}, array_->cache()}};
  if (has_masks()) {
    // Masks are read after the tokens, whose job determines which masks to read.
    const auto& masks = documents_->mask_array();
    mask_engine_ = masks->engine();
    streams.push_back({masks->layout, *mask_engine_, {}, 0, masks->cache()});
  }
  return streams;
}

Job& TokenLoader::Impl::job(const Filling& batch, std::size_t stream) {
  if (stream == 1) return documents_->mask_job(batch.slot);
  Stored& stored = stored_[batch.slot];
  stored.job = Job{};
  if (megatron_) {
    stored.runs.clear();
    std::byte* out = stored.tokens.data();
    for (const std::uint64_t row : batch.rows) {
      const auto [set, number] = megatron_->sample(row);
      const std::uint64_t first = first_token_of(set);
      megatron_->set(set).for_each_run(number, [&](std::uint64_t start, std::uint64_t count) {
        stored.runs.push_back({first + start, count, out});
        out += count * array_->layout.dtype.size;
      });
    }
    stored.job.runs = stored.runs;
    return stored.job;
  }
  if (documents_ && documents_->in_pieces()) {
    const auto runs =
        documents_->runs(batch.slot, batch.rows, batch.fields[2], stored.tokens.data());
    if (!windowed()) stored.job.runs = runs;
    return stored.job;
  }
  if (documents_) documents_->prepare(batch.slot, batch.rows, batch.fields[2]);
  if (windowed()) return stored.job;
  stored.job.starts = batch.rows;
  stored.job.count = options_.block_size + 1;
  stored.job.out = stored.tokens.data();
  return stored.job;
}

void TokenLoader::Impl::finish(const Filling& batch) {
  Stored& mine = stored_[batch.slot];
  if (windows_.any()) {
    mine.crops.resize(batch.rows.size());
    windows_.take(0, batch.pieces, mine.crops, mine.tokens.data());
  }
  if (document_windows_.any()) take_documents(batch);
  std::byte* const stored = mine.tokens.data();
  if (documents_) documents_->finish(batch.slot, batch.rows, stored, batch.fields[2]);
  if (documents_ && documents_->in_pieces()) {
    if (documents_->widen_pieces(batch.slot, stored, out_type_, batch.fields[0], batch.fields[1])) {
      return;
    }
    throw token_too_large(array_->layout, out_type_);
  }
  const std::uint64_t stored_row = (options_.block_size + 1) * array_->layout.dtype.size;
  const std::uint64_t out_row = options_.block_size * out_type_.size;
  bool fits = true;
  for (std::uint64_t i = 0; i < batch.rows.size() && fits; ++i) {
    fits = widen_xy(array_->layout.dtype, stored + i * stored_row, options_.block_size, out_type_,
                    batch.fields[0] + i * out_row, batch.fields[1] + i * out_row);
  }
  if (!fits) throw token_too_large(array_->layout, out_type_);
}

Batch TokenLoader::Impl::batch_of(const Pipeline::Lent& lent) const {
  Batch batch;
  batch.step_ = lent.step;
  batch.rows_ = lent.rows;
  batch.columns_ = options_.block_size;
  batch.dtype_ = out_type_;
  batch.x_ = lent.fields[0];
  batch.y_ = lent.fields[1];
  if (documents_) {
    batch.documents_ = lent.fields[2];
    batch.layout_ = documents_->layout();
    batch.fixed_documents_ = options_.documents.most_documents > 0;
    if (documents_->whole()) {
      batch.ragged_ = true;
      batch.rows_ = 1;
      batch.columns_ = DocumentBatches::places(batch.documents_);
    }
  }
  return batch;
}

std::uint64_t TokenLoader::Impl::first_token_of(std::size_t set) const {
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < set; ++i) first += mixture_[i].tokens.size();
  return first;
}

TokenLoader::TokenLoader(const Tokens& tokens, LoaderOptions options)
    : TokenLoader(std::vector<WeightedTokens>{{tokens, 1}}, std::move(options)) {}
TokenLoader::TokenLoader(std::vector<WeightedTokens> mixture, LoaderOptions options)
    : impl_(new Impl(std::move(mixture), std::move(options), false)) {}
void TokenLoader::End::operator()(void* impl) const { end_loader(static_cast<Impl*>(impl)); }

const Batch* TokenLoader::next() { return impl_->next(); }

TokenLoader::Iterator TokenLoader::begin() {
  impl_->begin_loop(true);
  return Iterator(this);
}

std::uint64_t TokenLoader::step() const { return impl_->step(); }
void TokenLoader::seek(std::uint64_t step) { impl_->seek(step); }
std::uint64_t TokenLoader::size() const { return impl_->size(); }
std::uint64_t TokenLoader::epoch_samples() const { return impl_->epoch_samples(); }
BlockOptions TokenLoader::blocks() const { return impl_->blocks(); }
Packing TokenLoader::packing() const { return impl_->packing(); }
int TokenLoader::buffers() const { return impl_->buffers(); }
LoaderStats TokenLoader::stats() const { return impl_->stats(); }
LoaderState TokenLoader::state() const { return impl_->state_at(impl_->step()); }
void TokenLoader::load(const LoaderState& state) { impl_->load(state); }
std::vector<CropOrigin> TokenLoader::explain(std::uint64_t step) const {
  return impl_->explain(step);
}
void TokenLoader::close() {
  if (impl_->owned_here()) impl_->close();
}

}  // namespace evenkeel
