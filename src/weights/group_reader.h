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
#include "weights/fresh_pages.h"
#include "weights/impl.h"

namespace evenkeel {

// What is read together: bytes of the files, each run to its own place.
struct ReadGroup {
  std::vector<JobRun> runs;
  bool roomy = false;  // see Job; the room is a page before and behind each run
};

// One thread uses it at a time; not in a child of fork.
class GroupReader final : private JobSource {
 public:
  // `ahead` groups are read at once; each `release` allows one more. What the runs point to must
  // outlive the reader. `fresh`: nobody has touched the memory of the roomy groups yet.
  GroupReader(std::shared_ptr<Weights::Impl> weights, std::vector<ReadGroup> groups,
              std::size_t ahead, bool fresh = false);
  ~GroupReader();
  GroupReader(const GroupReader&) = delete;
  GroupReader& operator=(const GroupReader&) = delete;

  // Waits for the next group, in the order in which they were given. False: all were read, and no
  // file changed meanwhile. Throws what reading threw.
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
  bool lies_as_in_file(const JobRun& run) const;

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
  bool ended_ GUARDED_BY(mutex_) = false;  // the thread reads no more
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  std::unique_ptr<FreshPages> fresh_;
  Mutex joining_;
  std::thread thread_ GUARDED_BY(joining_);
};

}  // namespace evenkeel
