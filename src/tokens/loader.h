// The implementation of TokenLoader, which the bindings use directly: a pipeline that cuts crops
// and finishes them as x and y.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "evenkeel/tokens.h"
#include "loader/batch_loader.h"
#include "tokens/impl.h"

namespace evenkeel {

struct TokenLoader::Impl final : Assembler, BatchLoader<TokenLoader::Impl, Batch> {
  // With `lends` the budget also pays for one batch that the user of `lend` holds.
  Impl(std::vector<WeightedTokens> sets, LoaderOptions options, bool lends);

  std::uint64_t epoch_samples() const { return pipeline_.steps().epoch_samples(); }
  ArrayStats stats() const { return array_->stats(); }
  LoaderState state_at(std::uint64_t step) const;
  void load(const LoaderState& state);
  std::vector<CropOrigin> explain(std::uint64_t step) const;

 private:
  friend BatchLoader;
  // What a batch on its way has besides x and y.
  struct Stored {
    PageBuffer tokens;
    Job job;
  };

  std::vector<std::uint64_t> field_bytes() const override { return {out_bytes(), out_bytes()}; }
  void add_slot(const Budget& budget) override;
  std::uint64_t slot_bytes() const override { return stored_bytes(); }
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
  Batch batch_of(const Pipeline::Lent& lent) const;
  std::string describe_data() const;
  std::uint64_t stored_bytes() const;
  std::uint64_t out_bytes() const;  // of x, and of y

  const LoaderOptions options_;
  const std::vector<WeightedTokens> mixture_;
  const std::shared_ptr<Array::Impl> array_;
  const std::shared_ptr<Engine> engine_;
  const DType out_type_;
  std::deque<Stored> stored_;  // one for each batch on its way
  Pipeline pipeline_;          // its threads use all of the above
};

}  // namespace evenkeel
