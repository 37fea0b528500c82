// The calls that the implementations of all loaders have in common.
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

// `Impl` derives from this class and from Assembler. It has a member `pipeline_`, which must be its
// last, and `batch_of`, which turns what the pipeline hands out into the batch that users see. All
// calls except `next` are thread-safe.
template <class Impl, class Batch>
class BatchLoader {
 public:
  // For the C++ loader: the batch stays valid until `keep` more batches were taken. Not
  // thread-safe.
  const Batch* next() {
    const Pipeline::Lent* lent = pipeline().next();
    if (!lent) return nullptr;
    while (held_.size() > pipeline().keep()) held_.pop_front();
    return &held_.emplace_back(impl().batch_of(*lent));
  }
  // For the bindings: the batch is valid for the lifetime of its loan.
  struct Lent {
    Batch batch;
    Loan loan;
    std::vector<std::shared_ptr<ExtraMemory>> keep;  // memory that the loan does not own
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
  void begin_loop(bool restart) { pipeline().begin_loop(restart); }
  std::uint64_t size() const { return pipeline().size(); }
  int buffers() const { return pipeline().buffers(); }
  LoaderStats stats() const {
    const LiveFigures batches = pipeline().figures();
    return {static_cast<const Impl&>(*this).read_stats(), batches.batches, batches.batch_wait_ns};
  }

  bool owned_here() const { return pipeline().owned_here(); }
  // Returns false if it could not close by the deadline. This object must then not be destroyed.
  bool close(std::optional<ReadAhead::Clock::time_point> deadline = {}) {
    return pipeline().close(deadline);
  }

 protected:
  ~BatchLoader() = default;

 private:
  Impl& impl() { return static_cast<Impl&>(*this); }
  Pipeline& pipeline() { return impl().pipeline_; }
  const Pipeline& pipeline() const { return static_cast<const Impl&>(*this).pipeline_; }

  // For the caller of `next`: views of the batches that the pipeline keeps valid.
  std::deque<Batch> held_;
};

// Deletes the implementation of a public loader. In a child of fork the threads do not exist, and
// mutexes may be locked forever, so the memory is leaked there.
template <class Impl>
void end_loader(Impl* impl) {
  if (impl->owned_here()) delete impl;
}

}  // namespace evenkeel
