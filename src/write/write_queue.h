// Blocks of memory on their way to a file: some threads write them while the caller fills others.
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
  // Buffers of the queue, and the page cache that writes pass through where they are not direct.
  std::uint64_t bytes(bool direct) const { return block_bytes * (blocks + (direct ? 0 : threads)); }
};
// Of at most `bytes`: 4 threads, and up to 16 blocks of 1 MiB.
QueueSize choose_queue(std::uint64_t bytes, bool direct);

// The first error of a write is thrown by the next call, and by all later ones. All calls come from
// one thread. The memory is reserved from the budget when it is made.
class WriteQueue {
 public:
  // `while_waiting` is called every 50 ms of a wait; what it throws ends the wait.
  WriteQueue(OutputFile& file, const Budget& budget, const QueueSize& size,
             std::function<void()> while_waiting = {});
  ~WriteQueue();  // waits for the writes under way; those that have not begun are dropped
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  const QueueSize& size() const { return size_; }
  std::byte* take() EXCLUDES(mutex_);  // a free block; waits for one
  void give_back(std::byte* block) EXCLUDES(mutex_);
  // Writes the first `length` bytes of a block that was taken, then gives it back.
  void submit(std::byte* block, std::uint64_t offset, std::uint64_t length) EXCLUDES(mutex_);
  void drain() EXCLUDES(mutex_);  // until all that was submitted is written
  void sync() EXCLUDES(mutex_);   // drains, and waits for the disk

 private:
  struct Job {
    std::byte* block = nullptr;  // none: sync the file
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
