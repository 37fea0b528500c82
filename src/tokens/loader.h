// The implementation of TokenLoader, which the bindings use directly.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "array/lending_pool.h"
#include "array/read_ahead.h"
#include "base/mutex.h"
#include "evenkeel/tokens.h"
#include "tokens/impl.h"
#include "tokens/schedule.h"

namespace evenkeel {

// Batches are numbered 0, 1, 2, ... as this loader takes them: number n is step
// phase + n * stride. All calls but `next` may come from several threads.
struct TokenLoader::Impl final : BatchMaker {
  // With `lends` the budget also pays for one batch that the user of `lend` holds.
  Impl(std::vector<WeightedTokens> sets, LoaderOptions options, bool lends);
  ~Impl();

  // For the C++ loader: the batch is valid as long as `keep` says. One thread at a time.
  const Batch* next();
  // For the bindings: the batch is valid as long as its loan lives.
  struct Lent {
    Batch batch;
    Loan loan;
  };
  ReadAhead::Outcome lend(Lent& lent, ReadAhead::Clock::time_point deadline);

  std::uint64_t step() const {
    require_owner();
    return step_of(ahead_->position());
  }
  void seek(std::uint64_t step);
  // A loop over the loader begins. `anew`: with `steps`, at step 0 also if it has not ended.
  void begin_loop(bool anew);
  std::uint64_t size() const;
  std::uint64_t epoch_samples() const { return schedule_.epoch_samples(); }
  int buffers() const { return buffers_made_; }
  ArrayStats stats() const { return array_->stats(); }
  LoaderState state_at(std::uint64_t step) const;
  void load(const LoaderState& state);
  std::vector<CropOrigin> explain(std::uint64_t step) const;

  bool owned_here() const { return ahead_->owned_here(); }
  // False: not by the deadline, so this object must not be destroyed.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {});

  Job& prepare(std::size_t slot, std::uint64_t number) override;
  void finish(std::size_t slot, std::uint64_t number) override;

 private:
  // What a slot of ReadAhead has besides x and y, which are in the pool.
  struct Buffer {
    PageBuffer stored;
    Reservation starts_share;
    std::vector<std::uint64_t> starts;
    Job job;
    std::byte *x = nullptr, *y = nullptr;
  };

  static LoaderOptions check(LoaderOptions options, const std::vector<WeightedTokens>& sets);
  std::shared_ptr<Array::Impl> open_joined() const;
  std::uint64_t steps_of_loop() const;
  void make_buffers(bool lends);
  void add_buffer();
  void require_owner() const;
  void require_step(const char* operation, std::uint64_t step) const;
  Batch batch_of(const Buffer& buffer, std::uint64_t number) const;
  std::string describe_data() const;

  std::uint64_t stored_bytes() const;
  std::uint64_t out_bytes() const;  // of x, and of y
  std::uint64_t y_offset() const;   // in a buffer of the library's
  std::byte* y_of(std::byte* x) const;
  std::uint64_t samples_of_step() const { return options_.batch_size * options_.world; }
  std::uint64_t last_step() const;
  std::uint64_t step_of(std::uint64_t number) const {
    return options_.workers.phase + number * options_.workers.stride;
  }
  // The first number whose step is `step` or later.
  std::uint64_t number_of(std::uint64_t step) const;
  // The step after the last of the loop that `step` is in.
  std::uint64_t end_of_loop(std::uint64_t step) const;

  const LoaderOptions options_;
  const std::vector<WeightedTokens> mixture_;
  const std::shared_ptr<Array::Impl> array_;
  const std::shared_ptr<Engine> engine_;
  const DType out_type_;
  Schedule schedule_;               // used by `prepare`
  const std::uint64_t loop_steps_;  // steps of one loop; 0: it does not end
  Reservation plan_share_, second_plan_share_, lent_share_;
  std::vector<Buffer> buffers_;
  int buffers_made_ = 0;
  std::shared_ptr<LendingPool> pool_;
  std::shared_ptr<ReadAhead> ahead_;  // its threads use all of the above: ~Impl closes it

  mutable Mutex mutex_;
  mutable Schedule explaining_ GUARDED_BY(mutex_);

  // Of the user of `next`.
  std::deque<Lent> held_;
};

}  // namespace evenkeel
