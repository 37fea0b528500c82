// The implementation of Loader: a pipeline whose batches are rows of arrays, as they are stored.
// The bindings use it directly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "array/impl.h"
#include "evenkeel/loader.h"
#include "loader/batch_loader.h"
#include "loader/ragged.h"
#include "loader/row_order.h"
#include "loader/windows.h"

namespace evenkeel {

struct Loader::Impl final : Assembler, BatchLoader<Loader::Impl, RowBatch> {
  // With `lends`, memory for one batch that the caller of `lend` holds is reserved as well.
  Impl(std::vector<WeightedRows> sets, RowLoaderOptions options, bool lends);

  // 0 if there are no epochs.
  std::uint64_t epoch_samples() const { return mixture_.size() > 1 ? 0 : steps_.epoch_samples(); }
  std::uint64_t epoch_of(std::uint64_t step) const {
    return epoch_samples() == 0 ? 0 : steps_.epoch_of(step);
  }
  ArrayStats read_stats() const;
  BlockOptions blocks() const { return windows_.blocks(); }
  RowLoaderState state_at(std::uint64_t step) const;
  void load(const RowLoaderState& state);
  std::vector<RowOrigin> explain(std::uint64_t step) const;

 private:
  friend BatchLoader;
  using Arrays = std::vector<std::shared_ptr<Array::Impl>>;
  // A field of a batch. One field of the loader may have several outputs.
  struct Output {
    std::size_t field, number;
    RaggedField::Output form;
  };

  std::vector<std::uint64_t> field_bytes() const override;
  void add_slot(const Budget& budget) override;
  std::uint64_t slot_bytes() const override;
  void keep_slots(std::size_t count) override;
  bool make_room(std::uint64_t bytes) override;
  std::string describe_batch() const override;
  bool streams_read() const override { return !windows_.any() || !read_.empty(); }
  std::size_t stream_count() const override { return std::max<std::size_t>(1, read_.size()); }
  bool wants_rows() const override { return !read_.empty(); }
  bool wants_pieces() const override { return windows_.any(); }
  std::vector<ReadStream> streams() override;
  Job& job(const Filling& batch, std::size_t stream) override;
  void finish(const Filling& batch) override;
  bool finishing_is_work() const override;
  void taken(const Filling& batch, Finished& finished) override;
  void interrupt() override { windows_.interrupt(); }
  void moved(const Positions& first, const Positions& end) override { windows_.seek(first, end); }
  void pass(const Positions& first, const Positions& end) override { windows_.pass(first, end); }
  bool close_readers(std::optional<ReadAhead::Clock::time_point> deadline) override {
    return windows_.close(deadline);
  }

  static RowLoaderOptions check(RowLoaderOptions options, const std::vector<WeightedRows>& sets);
  Arrays join_fields() const;
  std::vector<std::unique_ptr<RaggedField>> make_ragged() const;
  std::vector<LoaderWindows::Set> make_sets() const;
  StagedMixture mixed_sets() const;
  Steps make_steps() const;
  void open_fields();
  Schedule make_schedule() const;
  Pipeline::Options pipeline_options(bool lends);
  std::vector<Output> make_outputs() const;
  std::span<std::byte* const> outputs_of(const Filling& batch, std::size_t field) const;
  RowBatch batch_of(const Pipeline::Lent& lent) const;
  std::string describe_data(std::uint64_t samples) const;

  const RowLoaderOptions options_;
  const std::vector<WeightedRows> mixture_;
  // Each field, with the sets of a mixture one after the other. For a ragged field, its offsets.
  const Arrays fields_;
  const std::vector<std::unique_ptr<RaggedField>> ragged_;  // by field; nullptr if not ragged
  const std::vector<Output> outputs_;
  const StagedMixture mixed_;
  const Steps steps_;
  const std::vector<LoaderWindows::Set> sets_;
  LoaderWindows windows_;  // for kBlocks
  struct Stream {
    std::size_t field, number;  // a field without windows, and which of its arrays
  };
  std::vector<Stream> read_;
  std::vector<std::shared_ptr<Engine>> engines_;  // of the streams in `read_`
  IdleEngine idle_;
  // What a batch needs while it is read, except its fields.
  struct Slot {
    Reservation rows_share;
    std::vector<std::uint64_t> rows;  // scratch memory for `finish`
    std::vector<Job> jobs;            // one for each stream
  };
  std::deque<Slot> slots_;
  Pipeline pipeline_;  // its threads use all of the above
};

}  // namespace evenkeel
