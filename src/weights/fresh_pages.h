// Memory that is about to be read into, made resident ahead of the reads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace evenkeel {

// New memory has no pages until it is touched, and the kernel fills each with zeros first. Left to
// the reads, the thread that starts them does that, one read after the other, and the disk waits.
// Here a few threads do it, in the order of the spans. A read that comes first waits for nothing:
// it does what it would have done anyway.
class FreshPages {
 public:
  // The spans must be memory that can be written until `stop` has returned, or this is gone.
  // Whatever cannot be had, threads or an old kernel's help, is left to the reads.
  explicit FreshPages(std::vector<std::span<std::byte>> spans);
  ~FreshPages() { stop(); }
  FreshPages(const FreshPages&) = delete;
  FreshPages& operator=(const FreshPages&) = delete;

  // Ends soon; from one thread.
  void stop();

 private:
  void touch();

  const std::vector<std::span<std::byte>> spans_;
  std::vector<std::uint64_t> first_piece_;  // of each span
  std::uint64_t pieces_ = 0;
  std::atomic<std::uint64_t> next_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace evenkeel
