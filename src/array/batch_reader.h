// The interface of batches, and reading one on the caller's thread. read_ahead.h reads batches on
// threads of the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "array/row_feed.h"

namespace evenkeel {

// Knows what the batches are. Called without locks of ReadAhead held.
class BatchMaker {
 public:
  // Called once for each batch, before it is prepared for any stream. One call at a time.
  virtual void begin(std::size_t /*slot*/, std::uint64_t /*number*/) {}
  // Returns the rows of batch `number` and the memory of `slot` that they go to. The maker owns the
  // job, which must live until the batch is finished. One call at a time.
  virtual Job& prepare(std::size_t slot, std::uint64_t number) = 0;
  // The same for one of several streams. Streams get to a batch in any order, except for
  // ReadStream::after.
  virtual Job& prepare_stream(std::size_t slot, std::uint64_t number, std::size_t /*stream*/) {
    return prepare(slot, number);
  }
  // Called when the rows are in place: turns them into what the user gets. One call at a time for
  // each slot.
  virtual void finish(std::size_t /*slot*/, std::uint64_t /*number*/) {}

 protected:
  ~BatchMaker() = default;
};

// Files that a batch takes rows from. A batch of several arrays has a stream and a job for each.
struct ReadStream {
  const Layout& layout;
  Engine& engine;
  std::optional<std::uint64_t> merge_gap = {};
  // If set, this stream is prepared after that earlier stream has read the batch, because what it
  // read determines what to read here.
  std::optional<std::size_t> after = {};
  RowCache* cache = nullptr;
};

// A feed and the engine that it runs on. Use it from one thread at a time; `cancel` may be called
// from any.
class FeedRunner {
 public:
  FeedRunner(const Layout& layout, Engine& engine, JobSource& source,
             std::optional<std::uint64_t> merge_gap, std::uint64_t budget_limit, RowCache* cache);
  void run();  // until the source has no more jobs, or `cancel`
  void cancel() { feed_.cancel(); }
  void reset() { feed_.reset(); }  // after a run that threw or was cancelled

 private:
  const Layout& layout_;
  Engine& engine_;
  JobSource& source_;
  RowFeed feed_;
};

// Reads one batch on the caller's thread. Use it from one thread at a time.
class BatchReader final : JobSource {
 public:
  BatchReader(const std::vector<ReadStream>& streams, BatchMaker& maker,
              std::uint64_t budget_limit);
  // Returns false if it was cancelled.
  bool read(std::size_t slot, std::uint64_t number);
  void cancel();  // from any thread: `read` returns soon
  void reset();

 private:
  Job* next_job() override;
  void job_done(Job&) override { done_ = true; }

  BatchMaker& maker_;
  std::deque<FeedRunner> runners_;  // one for each stream
  struct Wanted {
    std::size_t slot;
    std::uint64_t number;
    std::size_t stream;
  };
  std::optional<Wanted> wanted_;
  bool done_ = false;
};

}  // namespace evenkeel
