// The implementation of TokenLoader: a pipeline that reads crops and turns them into x and y. The
// bindings use it directly.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/tokens.h"
#include "loader/batch_loader.h"
#include "loader/windows.h"
#include "tokens/document_batches.h"
#include "tokens/document_windows.h"
#include "tokens/impl.h"
#include "tokens/megatron_blend.h"

namespace evenkeel {

struct TokenLoader::Impl final : Assembler, BatchLoader<TokenLoader::Impl, Batch> {
  // With `lends`, memory for one batch that the caller of `lend` holds is reserved as well.
  Impl(std::vector<WeightedTokens> sets, LoaderOptions options, bool lends);

  std::uint64_t epoch_samples() const { return pipeline_.steps().epoch_samples(); }
  ArrayStats read_stats() const { return array_->stats(); }
  BlockOptions blocks() const { return windows_.blocks(); }
  LoaderState state_at(std::uint64_t step) const;
  void load(const LoaderState& state);
  std::vector<CropOrigin> explain(std::uint64_t step) const;
  bool has_documents() const { return documents_ != nullptr; }
  Packing packing() const { return documents_ ? documents_->packing() : Packing{}; }

 private:
  friend BatchLoader;
  // What a batch needs while it is read, except its fields.
  struct Stored {
    PageBuffer tokens;
    Job job;
    Reservation crops_share;
    std::vector<std::uint64_t> crops;  // scratch memory for `finish`, with windows
    Reservation runs_share = {};
    std::vector<JobRun> runs = {};  // for kMegatron, whose rows are made of several documents
  };

  std::vector<std::uint64_t> field_bytes() const override;
  void add_slot(const Budget& budget) override;
  std::uint64_t slot_bytes() const override;
  std::uint64_t reads_of_row() const override {
    return megatron_ ? megatron_->most_runs() : documents_ ? documents_->reads_of_row() : 1;
  }
  void keep_slots(std::size_t count) override;
  std::string describe_batch() const override;
  // Whether loss masks are read together with the tokens, and not in windows.
  bool has_masks() const {
    return documents_ && documents_->mask_array() && !document_windows_.any();
  }
  // Whether batches are copied out of windows.
  bool windowed() const { return windows_.any() || document_windows_.any(); }
  std::size_t stream_count() const override { return has_masks() ? 2 : 1; }
  std::vector<ReadStream> streams() override;
  Job& job(const Filling& batch, std::size_t stream) override;
  void finish(const Filling& batch) override;
  bool finishing_is_work() const override { return true; }
  bool make_room(std::uint64_t bytes) override;
  bool streams_read() const override { return !windowed(); }
  bool wants_rows() const override { return !windows_.any() || documents_; }
  bool wants_pieces() const override { return windowed(); }
  void interrupt() override {
    windows_.interrupt();
    document_windows_.interrupt();
  }
  void moved(const Positions& first, const Positions& end) override {
    windows_.seek(first, end);
    document_windows_.seek(first, end);
  }
  void pass(const Positions& first, const Positions& end) override {
    windows_.pass(first, end);
    document_windows_.pass(first, end);
  }
  bool close_readers(std::optional<ReadAhead::Clock::time_point> deadline) override {
    return windows_.close(deadline) && document_windows_.close(deadline);
  }

  static LoaderOptions check(LoaderOptions options, const std::vector<WeightedTokens>& sets);
  std::shared_ptr<Array::Impl> open_joined() const;
  std::unique_ptr<DocumentBatches> make_documents() const;
  std::vector<LoaderWindows::Set> make_sets() const;
  std::optional<StagedMixture> make_mixture() const;
  Steps make_steps() const;
  Schedule make_schedule();
  std::unique_ptr<SampleOrder> make_order(std::size_t set, DocumentBatches::OrderUse use);
  // For kBlocks: whether windows depend on documents or have loss masks. Otherwise they are windows
  // of crops.
  bool windows_of_documents() const;
  void open_windows();
  std::unique_ptr<DocumentWindowReader> make_window_reader(std::size_t set);
  void change_windows(const BlockOptions& blocks);
  void take_documents(const Filling& batch);
  Pipeline::Options pipeline_options(bool lends);
  Steps steps_of_schedule(const std::vector<ScheduledSet>& sets) const;
  std::uint64_t first_token_of(std::size_t set) const;  // counted through all sets
  void locate(Schedule::Sample& sample) const;
  Batch batch_of(const Pipeline::Lent& lent) const;
  std::string describe_data(std::uint64_t samples) const;
  std::uint64_t stored_bytes() const;
  std::uint64_t crop_list_bytes() const;
  std::uint64_t runs_bytes() const;  // for a batch, with kMegatron
  std::shared_ptr<const MegatronDataset> make_megatron() const;
  std::uint64_t out_bytes() const;  // of x, and of y

  const LoaderOptions options_;
  const std::vector<WeightedTokens> mixture_;
  const std::shared_ptr<Array::Impl> array_;
  const DType out_type_;
  const std::shared_ptr<const MegatronDataset> megatron_;  // for kMegatron
  const std::unique_ptr<DocumentBatches> documents_;       // nullptr for DocumentMode::kNone
  const std::vector<LoaderWindows::Set> sets_;
  // Both schedules use it. Not set for kMegatron. For orders other than kBlocks, the first
  // make_schedule sets it.
  std::optional<StagedMixture> mixed_;
  bool scheduled_ = false;            // whether the first schedule exists; the second one explains
  const Steps steps_;                 // for kBlocks and kMegatron
  LoaderWindows windows_;             // for kBlocks
  DocumentWindows document_windows_;  // for kBlocks; see windows_of_documents
  std::shared_ptr<Engine> engine_, mask_engine_;
  IdleEngine idle_;
  std::deque<Stored> stored_;  // one for each slot
  Pipeline pipeline_;          // its threads use all of the above
};

}  // namespace evenkeel
