// The implementation of TokenLoader, which the bindings use directly: a pipeline that cuts crops
// and finishes them as x and y.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/tokens.h"
#include "loader/pipeline.h"
#include "tokens/impl.h"
#include "tokens/megatron_blend.h"

namespace evenkeel {

// All calls but `next` may come from several threads.
struct TokenLoader::Impl final : Assembler {
  // With `lends` the budget also pays for one batch that the user of `lend` holds.
  Impl(std::vector<WeightedTokens> sets, LoaderOptions options, bool lends);

  // For the C++ loader: the batch is valid as long as `keep` says. One thread at a time.
  const Batch* next();
  // For the bindings: the batch is valid as long as its loan lives.
  struct Lent {
    Batch batch;
    Loan loan;
  };
  ReadAhead::Outcome lend(Lent& lent, ReadAhead::Clock::time_point deadline);

  std::uint64_t step() const { return pipeline_.step(); }
  void seek(std::uint64_t step) { pipeline_.seek(step); }
  void begin_loop(bool anew) { pipeline_.begin_loop(anew); }
  std::uint64_t size() const { return pipeline_.size(); }
  std::uint64_t epoch_samples() const { return pipeline_.steps().epoch_samples(); }
  int buffers() const { return pipeline_.buffers(); }
  ArrayStats stats() const { return array_->stats(); }
  LoaderState state_at(std::uint64_t step) const;
  void load(const LoaderState& state);
  std::vector<CropOrigin> explain(std::uint64_t step) const;

  bool owned_here() const { return pipeline_.owned_here(); }
  // False: not by the deadline, so this object must not be destroyed.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {}) {
    return pipeline_.close(deadline);
  }

 private:
  // What a batch on its way has besides x and y.
  struct Stored {
    PageBuffer tokens;
    Job job;
    Reservation runs_share = {};
    std::vector<JobRun> runs = {};  // of kMegatron, whose rows are made of several documents
  };

  std::vector<std::uint64_t> field_bytes() const override { return {out_bytes(), out_bytes()}; }
  void add_slot(const Budget& budget) override;
  std::uint64_t slot_bytes() const override { return stored_bytes() + runs_bytes(); }
  std::uint64_t reads_of_row() const override { return megatron_ ? megatron_->most_runs() : 1; }
  void free_slots() override { stored_.clear(); }
  std::string describe_batch() const override;
  std::size_t stream_count() const override { return 1; }
  std::vector<ReadStream> streams() override;
  Job& job(const Filling& batch, std::size_t stream) override;
  void finish(const Filling& batch) override;
  bool finishing_is_work() const override { return true; }

  static LoaderOptions check(LoaderOptions options, const std::vector<WeightedTokens>& sets);
  std::shared_ptr<Array::Impl> open_joined() const;
  Schedule make_schedule() const;
  Pipeline::Options pipeline_options(bool lends) const;
  std::uint64_t first_token_of(std::size_t set) const;  // in the sets one after the other
  void locate(Schedule::Sample& sample) const;
  Batch batch_of(const Pipeline::Lent& lent) const;
  std::string describe_data(std::uint64_t samples) const;
  std::uint64_t stored_bytes() const;
  std::uint64_t runs_bytes() const;  // of a batch, with kMegatron
  std::shared_ptr<const MegatronDataset> make_megatron() const;
  std::uint64_t out_bytes() const;  // of x, and of y

  const LoaderOptions options_;
  const std::vector<WeightedTokens> mixture_;
  const std::shared_ptr<Array::Impl> array_;
  const std::shared_ptr<Engine> engine_;
  const DType out_type_;
  const std::shared_ptr<const MegatronDataset> megatron_;  // of kMegatron
  std::deque<Stored> stored_;                              // one for each batch on its way
  Pipeline pipeline_;                                      // its threads use all of the above

  // Of the user of `next`: the views of the batches that the pipeline keeps for it.
  std::deque<Batch> held_;
};

}  // namespace evenkeel
