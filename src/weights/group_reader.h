// Reads groups of runs in order, on its own thread, and keeps the disk busy between groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "array/row_feed.h"
#include "base/mutex.h"
#include "weights/fresh_pages.h"
#include "weights/impl.h"

namespace evenkeel {

// Runs of bytes that are read together, each to its own place in memory.
struct ReadGroup {
  std::vector<JobRun> runs;
  bool roomy = false;  // as in Job: there is room for alignment before and after each run
};

// `next` is called by one thread at a time, the others by any. Must not be used in a child of fork.
class GroupReader final : private JobSource {
 public:
  // The first `ahead` groups may be read immediately; each `release` allows one more. The memory of
  // the runs must outlive the reader. `most_in_flight` is as in Feed: if it is less than the groups
  // ahead, the disk does not wait for `release`. `fresh`: the memory of the roomy groups was not
  // touched yet.
  GroupReader(std::shared_ptr<Weights::Impl> weights, std::vector<ReadGroup> groups,
              std::size_t ahead, std::uint64_t most_in_flight = UINT64_MAX, bool fresh = false);
  ~GroupReader();
  GroupReader(const GroupReader&) = delete;
  GroupReader& operator=(const GroupReader&) = delete;

  // Waits for the next group, in the order of the constructor's argument. Returns false when all
  // groups were read and no file changed meanwhile. Throws the error of a read that failed.
  bool next();
  // Whether `next` would return or throw at once.
  bool has_next();
  // One of the groups that `next` waited for is no longer needed.
  void release();
  // Stops reading. When it returns, nothing writes into the memory of the runs any more. A `next`
  // that is waiting throws Error (kClosed). May be called from any thread.
  void close();

 private:
  Job* next_job() override;
  void job_done(Job& job) override;
  std::uint64_t most_in_flight() const override { return most_in_flight_; }
  void read_all();
  bool is_ready() const REQUIRES(mutex_);
  bool lies_as_in_file(const JobRun& run) const;

  const std::shared_ptr<Weights::Impl> weights_;
  const std::vector<ReadGroup> groups_;
  Reservation share_;
  std::vector<Job> jobs_;  // one for each group; used by the reading thread only
  RowFeed feed_;
  const std::uint64_t most_in_flight_;
  Mutex mutex_;
  CondVar changed_;
  std::size_t allowed_ GUARDED_BY(mutex_);
  std::size_t started_ GUARDED_BY(mutex_) = 0;
  std::size_t given_ GUARDED_BY(mutex_) = 0;
  std::vector<bool> done_ GUARDED_BY(mutex_);
  bool cancelled_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;  // the reading thread is done
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  std::unique_ptr<FreshPages> fresh_;
  Mutex joining_;
  std::thread thread_ GUARDED_BY(joining_);
};

}  // namespace evenkeel
