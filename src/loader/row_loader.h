// The implementation of Loader, which the bindings use directly: a pipeline whose batches are rows
// of arrays, as they are stored.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "array/impl.h"
#include "evenkeel/loader.h"
#include "loader/pipeline.h"

namespace evenkeel {

// All calls but `next` may come from several threads.
struct Loader::Impl final : Assembler {
  // With `lends` the budget also pays for one batch that the user of `lend` holds.
  Impl(std::vector<WeightedRows> sets, RowLoaderOptions options, bool lends);

  // For the C++ loader: the batch is valid as long as `keep` says. One thread at a time.
  const RowBatch* next();
  // For the bindings: the batch is valid as long as its loan lives.
  struct Lent {
    RowBatch batch;
    Loan loan;
  };
  ReadAhead::Outcome lend(Lent& lent, ReadAhead::Clock::time_point deadline);

  std::uint64_t step() const { return pipeline_.step(); }
  void seek(std::uint64_t step) { pipeline_.seek(step); }
  void begin_loop(bool anew) { pipeline_.begin_loop(anew); }
  std::uint64_t size() const { return pipeline_.size(); }
  std::uint64_t epoch_samples() const { return pipeline_.steps().epoch_samples(); }
  int buffers() const { return pipeline_.buffers(); }
  RowLoaderState state_at(std::uint64_t step) const;
  void load(const RowLoaderState& state);
  std::vector<RowOrigin> explain(std::uint64_t step) const;

  bool owned_here() const { return pipeline_.owned_here(); }
  // False: not by the deadline, so this object must not be destroyed.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {}) {
    return pipeline_.close(deadline);
  }

 private:
  using Arrays = std::vector<std::shared_ptr<Array::Impl>>;

  std::vector<std::uint64_t> field_bytes() const override;
  void add_slot(const Budget& budget) override;
  std::uint64_t slot_bytes() const override { return 0; }
  void free_slots() override { jobs_.clear(); }
  bool make_room(std::uint64_t bytes) override;
  std::string describe_batch() const override;
  std::size_t stream_count() const override { return fields_.size(); }
  std::vector<ReadStream> streams() override;
  Job& job(const Filling& batch, std::size_t stream) override;

  static RowLoaderOptions check(RowLoaderOptions options, const std::vector<WeightedRows>& sets);
  Arrays join_fields() const;
  Schedule make_schedule() const;
  Pipeline::Options pipeline_options(bool lends) const;
  RowBatch batch_of(const Pipeline::Lent& lent) const;
  std::string describe_data() const;

  const RowLoaderOptions options_;
  const std::vector<WeightedRows> mixture_;
  const Arrays fields_;                           // the sets of a mixture one after the other
  std::vector<std::shared_ptr<Engine>> engines_;  // one for each field
  std::deque<std::vector<Job>> jobs_;             // for each batch on its way one for each field
  Pipeline pipeline_;                             // its threads use all of the above

  // Of the user of `next`: the views of the batches that the pipeline keeps for it.
  std::deque<RowBatch> held_;
};

}  // namespace evenkeel
