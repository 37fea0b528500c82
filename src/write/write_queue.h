// A queue of blocks to be written to a file. Threads write them while the caller fills others.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "base/mutex.h"
#include "evenkeel/budget.h"
#include "write/output_file.h"

namespace evenkeel {

struct QueueSize {
  std::uint64_t block_bytes = 0;  // a power of two, at least OutputFile::kAlignment
  std::uint64_t blocks = 0;
  std::uint64_t threads = 0;
  // The buffers of the queue and, if writes are not direct, the page cache they pass through.
  std::uint64_t bytes(bool direct) const { return block_bytes * (blocks + (direct ? 0 : threads)); }
};
// A queue that takes at most `bytes`: up to 4 threads and 16 blocks of 1 MiB.
QueueSize choose_queue(std::uint64_t bytes, bool direct);

// The next call after a failed write throws its error, and so do all later ones. All calls must
// come from one thread. The constructor reserves the memory from the budget.
class WriteQueue {
 public:
  // `while_waiting` is called every 50 ms of a wait; an exception from it ends the wait.
  WriteQueue(OutputFile& file, const Budget& budget, const QueueSize& size,
             std::function<void()> while_waiting = {});
  ~WriteQueue();  // waits for writes in progress; drops those that have not begun
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  const QueueSize& size() const { return size_; }
  std::byte* take() EXCLUDES(mutex_);  // waits for a free block
  void give_back(std::byte* block) EXCLUDES(mutex_);
  // Queues the first `length` bytes of a taken block for writing. The block is then free again.
  void submit(std::byte* block, std::uint64_t offset, std::uint64_t length) EXCLUDES(mutex_);
  void drain() EXCLUDES(mutex_);  // waits until everything submitted is written
  void sync() EXCLUDES(mutex_);   // drains, then syncs the file

 private:
  struct Job {
    std::byte* block = nullptr;  // null: sync the file
    std::uint64_t offset = 0, length = 0;
  };
  void work() EXCLUDES(mutex_);
  void run(const Job& job);
  void throw_error() REQUIRES(mutex_);
  void wait() REQUIRES(mutex_);
  void enqueue(const Job& job) EXCLUDES(mutex_);

  OutputFile& file_;
  const QueueSize size_;
  const std::function<void()> while_waiting_;
  PageBuffer memory_;
  Reservation page_cache_;
  Mutex mutex_;
  CondVar work_, done_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  std::vector<std::byte*> free_ GUARDED_BY(mutex_);
  std::uint64_t unfinished_ GUARDED_BY(mutex_) = 0;  // submitted and not written yet
  bool ending_ GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace evenkeel
