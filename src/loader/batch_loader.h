// The calls that the implementations of all loaders have.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "evenkeel/loader.h"
#include "loader/pipeline.h"

namespace evenkeel {

// `Impl` derives from it and is an Assembler; it has a member `pipeline_`, which is its last, and
// `batch_of` makes of what the pipeline hands out what users see. All calls but `next` may come
// from several threads.
template <class Impl, class Batch>
class BatchLoader {
 public:
  // For the C++ loader: the batch is valid as long as `keep` says. One thread at a time.
  const Batch* next() {
    const Pipeline::Lent* lent = pipeline().next();
    if (!lent) return nullptr;
    while (held_.size() > pipeline().keep()) held_.pop_front();
    return &held_.emplace_back(impl().batch_of(*lent));
  }
  // For the bindings: the batch is valid as long as its loan lives.
  struct Lent {
    Batch batch;
    Loan loan;
    std::vector<std::shared_ptr<const void>> keep;  // memory besides the loan's
  };
  ReadAhead::Outcome lend(Lent& lent, ReadAhead::Clock::time_point deadline) {
    Pipeline::Lent taken;
    const ReadAhead::Outcome outcome = pipeline().lend(taken, deadline);
    if (outcome == ReadAhead::Outcome::kTaken) {
      lent = {impl().batch_of(taken), std::move(taken.loan), std::move(taken.keep)};
    }
    return outcome;
  }

  std::uint64_t step() const { return pipeline().step(); }
  void seek(std::uint64_t step) { pipeline().seek(step); }
  void begin_loop(bool anew) { pipeline().begin_loop(anew); }
  std::uint64_t size() const { return pipeline().size(); }
  int buffers() const { return pipeline().buffers(); }
  // From any thread.
  LoaderStats stats() const {
    const LiveFigures batches = pipeline().figures();
    return {static_cast<const Impl&>(*this).read_stats(), batches.batches, batches.batch_wait_ns};
  }

  bool owned_here() const { return pipeline().owned_here(); }
  // False: not by the deadline, so this object must not be destroyed.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {}) {
    return pipeline().close(deadline);
  }

 protected:
  ~BatchLoader() = default;

 private:
  Impl& impl() { return static_cast<Impl&>(*this); }
  Pipeline& pipeline() { return impl().pipeline_; }
  const Pipeline& pipeline() const { return static_cast<const Impl&>(*this).pipeline_; }

  // Of the user of `next`: the views of the batches that the pipeline keeps for it.
  std::deque<Batch> held_;
};

// What the public loaders delete their implementation with. In a child of fork the threads do not
// exist, and their mutexes may be held for ever: the memory is left as it is.
template <class Impl>
void end_loader(Impl* impl) {
  if (impl->owned_here()) delete impl;
}

}  // namespace evenkeel
