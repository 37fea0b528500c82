#include "write/write_queue.h"

#include <algorithm>
#include <bit>
#include <system_error>

#include "base/interruptible_wait.h"
#include "base/thread.h"

namespace evenkeel {

QueueSize choose_queue(std::uint64_t bytes, bool direct) {
  constexpr std::uint64_t kMost = 16_MiB, kLargest = 1_MiB, kThreads = 4;
  const std::uint64_t all = std::min(bytes, kMost);
  QueueSize size;
  size.block_bytes = std::clamp(std::bit_floor(std::max<std::uint64_t>(all / 12, 1)),
                                OutputFile::kAlignment, kLargest);
  const std::uint64_t fit = all / size.block_bytes;
  size.threads = std::clamp<std::uint64_t>(fit / 3, 1, kThreads);
  const std::uint64_t cached = direct ? 0 : size.threads;
  size.blocks = fit > cached + 2 ? fit - cached : 2;
  return size;
}

WriteQueue::WriteQueue(OutputFile& file, const Budget& budget, const QueueSize& size,
                       std::function<void()> while_waiting)
    : file_(file),
      size_(size),
      while_waiting_(std::move(while_waiting)),
      memory_(budget, size.block_bytes * size.blocks, "write buffers") {
  if (!file.direct()) {
    page_cache_ = budget.reserve(size.block_bytes * size.threads, "page cache of writes");
  }
  for (std::uint64_t i = 0; i < size.blocks; ++i) {
    free_.push_back(memory_.data() + i * size.block_bytes);
  }
  threads_.reserve(size.threads);  // push_back must not fail after a thread was started
  for (std::uint64_t i = 0; i < size.threads; ++i) {
    try {
      threads_.push_back(start_thread([this] { work(); }));
    } catch (const std::system_error&) {
      break;  // fewer threads are enough; without any, the caller writes
    }
  }
}

WriteQueue::~WriteQueue() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WriteQueue::run(const Job& job) {
  if (job.block) {
    file_.write(job.offset, {job.block, job.length});
  } else {
    file_.sync();
  }
}

void WriteQueue::work() {
  MutexLock lock(mutex_);
  for (;;) {
    while (jobs_.empty() && !ending_) work_.wait(mutex_);
    if (ending_) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    const bool failed = error_ != nullptr;
    lock.unlock();
    std::exception_ptr error;
    if (!failed) {
      try {
        run(job);
      } catch (...) {
        error = std::current_exception();
      }
    }
    lock.lock();
    if (error && !error_) error_ = error;
    if (job.block) free_.push_back(job.block);
    --unfinished_;
    done_.notify_all();
  }
}

void WriteQueue::throw_error() {
  if (error_) std::rethrow_exception(error_);
}

void WriteQueue::wait() { wait_interruptibly(mutex_, done_, while_waiting_); }

std::byte* WriteQueue::take() {
  const MutexLock lock(mutex_);
  while (free_.empty() && !error_) wait();
  throw_error();
  std::byte* const block = free_.back();
  free_.pop_back();
  return block;
}

void WriteQueue::give_back(std::byte* block) {
  const MutexLock lock(mutex_);
  free_.push_back(block);
}

void WriteQueue::enqueue(const Job& job) {
  if (threads_.empty()) {
    run(job);
    const MutexLock lock(mutex_);
    if (job.block) free_.push_back(job.block);
    return;
  }
  {
    const MutexLock lock(mutex_);
    throw_error();
    jobs_.push_back(job);
    ++unfinished_;
  }
  work_.notify_one();
}

void WriteQueue::submit(std::byte* block, std::uint64_t offset, std::uint64_t length) {
  enqueue({block, offset, length});
}

void WriteQueue::drain() {
  const MutexLock lock(mutex_);
  while (unfinished_ > 0) wait();
  throw_error();
}

void WriteQueue::sync() {
  drain();
  enqueue({});
  drain();
}

}  // namespace evenkeel
