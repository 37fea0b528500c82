#include "loader/row_loader.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/visible.h"
#include "loader/data.h"
#include "loader/row_order.h"

namespace evenkeel {
namespace {

Error wrong_rows(const std::string& what) { return Error(ErrorKind::kInvalid, "loader", what); }

bool has_epochs(const RowLoaderOptions& options, std::size_t sets) {
  return options.order != OrderKind::kRandom && sets == 1;
}

bool follow_one_another(std::span<const std::uint64_t> rows) {
  for (std::size_t i = 1; i < rows.size(); ++i) {
    if (rows[i] != rows[i - 1] + 1) return false;
  }
  return !rows.empty();
}

}  // namespace

Loader::Impl::Impl(std::vector<WeightedRows> sets, RowLoaderOptions options, bool lends)
    : options_(check(std::move(options), sets)),
      mixture_(std::move(sets)),
      fields_(join_fields()),
      ragged_(make_ragged()),
      outputs_(make_outputs()),
      mixed_(mixed_sets()),
      steps_(make_steps()),
      sets_(make_sets()),
      windows_(steps_, sets_),
      pipeline_(
          pipeline_options(lends), [this] { return make_schedule(); }, *this) {}

RowLoaderOptions Loader::Impl::check(RowLoaderOptions options,
                                     const std::vector<WeightedRows>& sets) {
  if (sets.empty()) throw wrong_rows("no arrays were given");
  for (const WeightedRows& set : sets) {
    if (set.fields.empty()) throw wrong_rows("no arrays were given");
    if (set.fields.size() != sets.front().fields.size()) {
      throw Error(ErrorKind::kInvalid, "mixture",
                  "a set has " + std::to_string(set.fields.size()) + " arrays, the first has " +
                      std::to_string(sets.front().fields.size()))
          .hint("the sets of a mixture must have the same fields");
    }
    const Layout& first = set.fields.front().array_->layout;
    const std::uint64_t rows = set.fields.front().rows();
    if (rows == 0) throw wrong_rows("the array has no rows").in(first.paths.front());
    for (const LoaderField& field : set.fields) {
      const Layout& layout = field.array_->layout;
      if (field.rows() == rows) continue;
      throw wrong_rows("arrays that belong together must have the same number of rows; there are " +
                       with_commas(rows) + " rows in " + visible(first.paths.front()) + " and " +
                       with_commas(field.rows()) + " in " + visible(layout.paths.front()));
    }
  }
  check_steps(steps_of(options));
  check_epochs(steps_of(options), options.order != OrderKind::kRandom, sets.size());
  std::uint64_t row_bytes = 0;
  for (const LoaderField& field : sets.front().fields) row_bytes += field.row_bytes();
  const auto bytes =
      checked_mul(options.batch_size, std::max<std::uint64_t>(row_bytes, sizeof(std::uint64_t)));
  if (!bytes || !checked_mul(*bytes, 32)) {
    throw wrong_rows("batch_size is too large: " + with_commas(options.batch_size) + " rows of " +
                     with_commas(row_bytes) + " bytes");
  }
  if (options.steps == 0 && options.epochs == 0 && has_epochs(options, sets.size())) {
    options.epochs = 1;
  }
  if (options.order == OrderKind::kBlocks) {
    // A window holds the rows of all arrays.
    LoaderBlocks blocks{
        options.blocks, row_bytes, sets.front().fields.front().budget().limit(), {}};
    for (const WeightedRows& set : sets) blocks.samples.push_back(set.fields.front().rows());
    options.blocks = choose_blocks(blocks, steps_of(options));
  }
  return options;
}

Loader::Impl::Arrays Loader::Impl::join_fields() const {
  Arrays fields;
  for (std::size_t i = 0; i < mixture_.front().fields.size(); ++i) {
    const std::shared_ptr<Array::Impl>& first = mixture_.front().fields[i].array_;
    if (mixture_.size() == 1) {
      fields.push_back(first);
      continue;
    }
    std::vector<const Layout*> layouts;
    for (const WeightedRows& set : mixture_) {
      if (!set.fields[i].values_.empty()) {
        throw Error(ErrorKind::kInvalid, "mixture", "rows of different lengths cannot be mixed")
            .in(set.fields[i].array_->layout.paths.front())
            .hint("use a loader for each set");
      }
      layouts.push_back(&set.fields[i].array_->layout);
    }
    const EngineKind asked = first->report().asked;
    fields.push_back(std::make_shared<Array::Impl>(
        joined_layout(layouts, "rows"),
        ArrayOptions{.budget = first->budget, .engine = asked, .merge_gap = first->merge_gap}));
  }
  return fields;
}

std::vector<std::unique_ptr<RaggedField>> Loader::Impl::make_ragged() const {
  std::vector<std::unique_ptr<RaggedField>> ragged;
  for (const LoaderField& field : mixture_.front().fields) {
    ragged.push_back(field.values_.empty()
                         ? nullptr
                         : std::make_unique<RaggedField>(field.array_, field.values_,
                                                         field.columns_, field.dense_));
  }
  return ragged;
}

std::vector<Loader::Impl::Output> Loader::Impl::make_outputs() const {
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (!ragged_[i]) {
      const Layout& layout = fields_[i]->layout;
      outputs.push_back(
          {i, 0, {layout.dtype, layout.row_bytes, options_.batch_size * layout.row_bytes}});
      continue;
    }
    std::size_t number = 0;
    for (const RaggedField::Output& form : ragged_[i]->outputs(options_.batch_size)) {
      outputs.push_back({i, number++, form});
    }
  }
  return outputs;
}

std::vector<LoaderWindows::Set> Loader::Impl::make_sets() const {
  std::vector<LoaderWindows::Set> sets;
  std::uint64_t first_row = 0;
  for (std::size_t i = 0; i < mixture_.size(); ++i) {
    Order order;
    order.kind = options_.order;
    order.seed = seed_of_set(options_.seed, i);
    order.blocks = options_.order == OrderKind::kBlocks ? options_.blocks : BlockOptions{0, 0, 0};
    const std::uint64_t rows = mixture_[i].fields.front().rows();
    sets.push_back({std::make_shared<SharedOrder>(order),
                    SampleShape{.samples = rows, .first_row = first_row},
                    repeat_of(options_.mixture, i)});
    first_row += rows;
  }
  return sets;
}

StagedMixture Loader::Impl::mixed_sets() const {
  std::vector<StagedMixture::Set> sets;
  const bool turns = options_.order == OrderKind::kBlocks && mixture_.size() > 1;
  const std::uint64_t turn = turns ? options_.blocks.streams : 1;
  for (const WeightedRows& set : mixture_) {
    const bool epochs = options_.order != OrderKind::kRandom;
    const std::uint64_t rows = set.fields.front().rows();
    sets.push_back({set.weight, epochs ? rows - rows % turn : 0});
  }
  return {sets, options_.mixture, options_.batch_size * options_.world, turn};
}

Steps Loader::Impl::make_steps() const {
  const bool epochs = has_epochs(options_, mixture_.size());
  const Steps::Ends ends = !epochs              ? Steps::Ends::kNone
                           : options_.drop_last ? Steps::Ends::kDrop
                                                : Steps::Ends::kShort;
  // A rank reads its own share of each window: positions r, r + w, ...
  const Steps::Shares shares =
      options_.order == OrderKind::kBlocks ? Steps::Shares::kInterleaved : Steps::Shares::kRuns;
  const bool counted = options_.order != OrderKind::kRandom;
  const std::uint64_t rows = mixture_.front().fields.front().rows();
  if (ends == Steps::Ends::kDrop && rows < options_.batch_size * options_.world) {
    throw no_whole_step(rows, options_.batch_size * options_.world)
        .hint("take a smaller batch_size, or keep the short batches (drop_last)");
  }
  return {ending_with(mixed_, steps_of(options_)), counted ? rows : 0, ends, shares};
}

Schedule Loader::Impl::make_schedule() const {
  std::vector<ScheduledSet> sets;
  for (std::size_t i = 0; i < mixture_.size(); ++i) {
    const auto& [order, shape, repeat] = sets_[i];
    sets.push_back({mixture_[i].weight, shape.samples,
                    std::make_unique<RowOrder>(shape.samples, order, mixture_.size() > 1)});
  }
  return {std::move(sets), steps_, options_.seed, mixed_};
}

// Opens the windows before the pipeline takes memory for batches, because they need more.
Pipeline::Options Loader::Impl::pipeline_options(bool lends) {
  open_fields();
  return {.prefetch = options_.prefetch,
          .keep = options_.buffers.keep,
          .memory = options_.buffers.memory,
          .lends = lends,
          .budget = mixture_.front().fields.front().budget()};
}

void Loader::Impl::open_fields() {
  std::vector<LoaderWindows::Field> fields;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (ragged_[i]) {
      fields.emplace_back(ragged_[i].get());
    } else {
      fields.emplace_back(fields_[i]);
    }
  }
  windows_.open(std::move(fields));
  read_.clear();
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const std::size_t streams = windows_.has(i) ? 0 : ragged_[i] ? ragged_[i]->streams() : 1;
    for (std::size_t number = 0; number < streams; ++number) read_.push_back({i, number});
  }
}

std::vector<std::uint64_t> Loader::Impl::field_bytes() const {
  std::vector<std::uint64_t> bytes;
  for (const Output& output : outputs_) bytes.push_back(output.form.bytes);
  return bytes;
}

std::uint64_t Loader::Impl::slot_bytes() const {
  std::uint64_t bytes = windows_.any() ? options_.batch_size * sizeof(std::uint64_t) : 0;
  for (const auto& ragged : ragged_) {
    if (ragged) bytes += ragged->slot_bytes(options_.batch_size);
  }
  return bytes;
}

void Loader::Impl::add_slot(const Budget& budget) {
  Slot slot;
  if (windows_.any()) {
    slot.rows_share =
        budget.reserve(options_.batch_size * sizeof(std::uint64_t), "a batch's row numbers");
    slot.rows.reserve(options_.batch_size);
  }
  for (const auto& ragged : ragged_) {
    if (ragged) ragged->add_slot(budget, options_.batch_size);
  }
  slot.jobs.resize(stream_count());
  slots_.push_back(std::move(slot));
}

void Loader::Impl::keep_slots(std::size_t count) {
  slots_.resize(std::min(count, slots_.size()));
  for (const auto& ragged : ragged_) {
    if (ragged) ragged->keep_slots(count);
  }
}

// If the batches do not fit beside the pages of an array that is mapped because it fits the budget,
// the array is read instead.
bool Loader::Impl::make_room(std::uint64_t bytes) {
  const auto gives_way = [&](Array::Impl& array) {
    try {
      if (!array.stop_mapping(bytes)) return false;
      open_fields();
      return true;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kBudget) throw;
      return false;
    }
  };
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (gives_way(*fields_[i])) return true;
    for (std::size_t n = 1; ragged_[i] && n < ragged_[i]->streams(); ++n) {
      if (gives_way(*ragged_[i]->array(n))) return true;
    }
  }
  return false;
}

std::string Loader::Impl::describe_batch() const {
  std::uint64_t bytes = 0;
  for (const Output& output : outputs_) bytes += output.form.bytes;
  return with_commas(options_.batch_size) + " rows of " + with_commas(bytes / options_.batch_size) +
         " bytes";
}

ArrayStats Loader::Impl::read_stats() const {
  ArrayStats sum;
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    sum += fields_[i]->stats();
    for (std::size_t n = 1; ragged_[i] && n < ragged_[i]->streams(); ++n) {
      sum += ragged_[i]->array(n)->stats();
    }
  }
  return sum;
}

std::vector<ReadStream> Loader::Impl::streams() {
  std::vector<ReadStream> streams;
  engines_.clear();
  for (std::size_t i = 0; i < read_.size(); ++i) {
    const auto [field, number] = read_[i];
    const auto& array = ragged_[field] ? ragged_[field]->array(number) : fields_[field];
    engines_.push_back(array->engine());
    // Values are read after the offsets, which determine which values to read.
    const auto after = number > 0 ? std::optional(i - number) : std::nullopt;
    streams.push_back({array->layout, *engines_.back(), array->merge_gap, after, array->cache()});
  }
  if (streams.empty()) streams.push_back({fields_.front()->layout, idle_, {}, {}});
  return streams;
}

std::span<std::byte* const> Loader::Impl::outputs_of(const Filling& batch,
                                                     std::size_t field) const {
  const auto first = std::ranges::find(outputs_, field, &Output::field);
  const auto count = std::ranges::count(outputs_, field, &Output::field);
  return std::span(batch.fields)
      .subspan(static_cast<std::size_t>(first - outputs_.begin()), static_cast<std::size_t>(count));
}

Job& Loader::Impl::job(const Filling& batch, std::size_t stream) {
  Job& job = slots_[batch.slot].jobs[stream];
  job = Job{};
  if (read_.empty()) return job;
  const auto [field, number] = read_[stream];
  const auto outputs = outputs_of(batch, field);
  if (ragged_[field]) return ragged_[field]->job(batch.slot, number, batch.rows, outputs);
  job.starts = batch.rows;
  job.out = outputs.front();
  if (follow_one_another(batch.rows)) {
    job.starts = batch.rows.first(1);
    job.count = batch.rows.size();
  }
  return job;
}

void Loader::Impl::finish(const Filling& batch) {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const auto outputs = outputs_of(batch, i);
    if (windows_.has(i)) {
      std::vector<std::uint64_t>& rows = slots_[batch.slot].rows;
      rows.resize(batch.rows.size());
      if (ragged_[i]) {
        windows_.take_ragged(i, batch.pieces, rows, batch.slot, outputs);
      } else {
        windows_.take(i, batch.pieces, rows, outputs.front());
      }
    }
    if (ragged_[i]) ragged_[i]->finish(batch.slot, batch.rows, outputs);
  }
}

// If everything comes out of windows, finishing is the only work, and the reading threads do it.
bool Loader::Impl::finishing_is_work() const {
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    if (ragged_[i] && !windows_.has(i)) return true;
  }
  return false;
}

void Loader::Impl::taken(const Filling& batch, Finished& finished) {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const auto& [field, number, form] = outputs_[i];
    if (!ragged_[field]) {
      finished.sizes.push_back(batch.rows.size() * form.row_bytes);
      continue;
    }
    RaggedField::Finished one =
        ragged_[field]->finished(batch.slot, number, batch.rows, batch.fields[i]);
    finished.fields[i] = one.data;
    finished.sizes.push_back(one.bytes);
    if (one.keep) finished.keep.push_back(std::move(one.keep));
  }
}

RowBatch Loader::Impl::batch_of(const Pipeline::Lent& lent) const {
  RowBatch batch;
  batch.step_ = lent.step;
  batch.rows_ = lent.rows;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const RaggedField::Output& form = outputs_[i].form;
    batch.fields_.push_back({form.dtype, form.row_bytes, lent.fields[i], lent.sizes[i]});
  }
  return batch;
}

std::vector<RowOrigin> Loader::Impl::explain(std::uint64_t step) const {
  std::vector<RowOrigin> origins;
  pipeline_.explain(step, [&](const Schedule::Sample& sample) {
    origins.push_back(
        {sample.position, sample.set, sample.place.epoch, sample.place.row, sample.stage});
  });
  return origins;
}

}  // namespace evenkeel
