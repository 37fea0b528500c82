// Reads groups of runs one after the other, on a thread of its own, without letting the disk
// rest between them.
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
#include "weights/impl.h"

namespace evenkeel {

// What is read together: bytes of the files, each run to its own place.
struct ReadGroup {
  std::vector<JobRun> runs;
  bool roomy = false;  // see Job
};

// One thread uses it at a time; not in a child of fork.
class GroupReader final : private JobSource {
 public:
  // `ahead` groups are read at once; each `release` allows one more. What the runs point to must
  // outlive the reader.
  GroupReader(std::shared_ptr<Weights::Impl> weights, std::vector<ReadGroup> groups,
              std::size_t ahead);
  ~GroupReader();
  GroupReader(const GroupReader&) = delete;
  GroupReader& operator=(const GroupReader&) = delete;

  // Waits for the next group, in the order in which they were given. False: all were read. Throws
  // what reading threw.
  bool next();
  // One of the groups that `next` gave is no longer needed.
  void release();
  // Ends reading, from any thread: when it returns, nothing writes into the memory of the runs any
  // more. A `next` that waits then throws Error (kClosed).
  void close();

 private:
  Job* next_job() override;
  void job_done(Job& job) override;
  void read_all();

  const std::shared_ptr<Weights::Impl> weights_;
  const std::vector<ReadGroup> groups_;
  Reservation share_;
  std::vector<Job> jobs_;  // one a group; the engine's thread alone uses them
  RowFeed feed_;
  Mutex mutex_;
  CondVar changed_;
  std::size_t allowed_ GUARDED_BY(mutex_);
  std::size_t started_ GUARDED_BY(mutex_) = 0;
  std::size_t given_ GUARDED_BY(mutex_) = 0;
  std::vector<bool> done_ GUARDED_BY(mutex_);
  bool cancelled_ GUARDED_BY(mutex_) = false;
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  Mutex joining_;
  std::thread thread_ GUARDED_BY(joining_);
};

}  // namespace evenkeel
