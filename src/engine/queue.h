// Keeps many reads in flight, with io_uring, or with threads if io_uring is not allowed.
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
  std::uint32_t file = 0;  // index of the registered file, if files are registered. All outstanding
                           // reads of one index must have the same fd
  std::uint32_t id = 0;    // comes back with the completion
  std::byte* buffer = nullptr;
  std::uint32_t length = 0;
  std::uint64_t offset = 0;
};

struct Completion {
  std::uint32_t id = 0;
  std::int32_t result = 0;  // bytes read, or -errno
};

// Used by one thread at a time, which may be any thread of the process that created the queue.
class ReadQueue {
 public:
  virtual ~ReadQueue() = default;
  // At most depth() reads may be outstanding.
  virtual void push(const ReadOp& op) = 0;
  // Submits all pushed reads, waits for `enough` completions (0: does not wait) and returns the
  // number written to `out`. It may be more, or, after a signal, fewer or zero. Throws Error
  // (kSystem) if the queue itself fails.
  virtual std::size_t wait(std::size_t enough, std::span<Completion> out) = 0;
  // Call this after such an error: it waits until no read writes into its buffer any more. The
  // queue cannot be used afterwards.
  virtual void abandon() noexcept {}
  virtual std::uint32_t depth() const = 0;
  virtual std::string describe() const = 0;  // "io_uring, 128 in flight, registered buffers"
};

// `arena` is registered if the memlock limit allows it. `files` is the number of files to register
// (0: none). Returns nullptr if io_uring is not available; `why_not` is then the reason.
std::unique_ptr<ReadQueue> make_uring_queue(std::uint32_t depth, std::span<std::byte> arena,
                                            std::size_t files, std::string& why_not);
std::unique_ptr<ReadQueue> make_thread_queue(std::uint32_t threads);

// For tests, nullptr otherwise: wraps each new queue of the engine `direct`, so that completions
// can be delayed, reordered, cut short or made to fail.
using QueueWrapper = std::unique_ptr<ReadQueue> (*)(std::unique_ptr<ReadQueue>);
extern std::atomic<QueueWrapper> queue_wrapper;

}  // namespace evenkeel
