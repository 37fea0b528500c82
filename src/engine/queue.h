// Many reads in flight at once: by io_uring, or by threads where that is not allowed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace evenkeel {

struct ReadOp {
  int fd = -1;
  std::uint32_t file = 0;  // the registered file, where files are registered; its outstanding reads
                           // have one fd
  std::uint32_t id = 0;    // comes back with the completion
  std::byte* buffer = nullptr;
  std::uint32_t length = 0;
  std::uint64_t offset = 0;
};

struct Completion {
  std::uint32_t id = 0;
  std::int32_t result = 0;  // bytes read, or -errno
};

// One thread at a time, any thread. Belongs to the process that made it.
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;
  // At most depth() reads may be outstanding.
  virtual void push(const ReadOp& op) = 0;
  // Starts all that was pushed, waits for `enough` completions (0: does not wait) and returns how
  // many are in `out`: more where they are there, fewer (none even) where a signal came. Throws
  // Error (kSystem) when the queue itself breaks.
  virtual std::size_t wait(std::size_t enough, std::span<Completion> out) = 0;
  // After that: waits until no read writes into its buffer any more. The queue is of no further
  // use.
  virtual void abandon() noexcept {}
  virtual std::uint32_t depth() const = 0;
  virtual std::string describe() const = 0;  // "io_uring, 128 in flight, registered buffers"
};

// `arena` is registered if the memlock limit allows; `files` is the number of files to register (0:
// none). Empty when io_uring is not to be had; `why_not` then says why.
std::unique_ptr<ReadQueue> make_uring_queue(std::uint32_t depth, std::span<std::byte> arena,
                                            std::size_t files, std::string& why_not);
std::unique_ptr<ReadQueue> make_thread_queue(std::uint32_t threads);

// For tests: what the direct engine's queues are put into when they are made, so that completions
// can come late, in another order, in part or not well. Empty otherwise.
using QueueWrapper = std::unique_ptr<ReadQueue> (*)(std::unique_ptr<ReadQueue>);
extern std::atomic<QueueWrapper> queue_wrapper;

}  // namespace evenkeel
