// Makes memory resident before it is read into.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace evenkeel {

// New memory has no pages until it is touched, and the kernel zeroes each page first. Without this
// class, the thread that starts the reads does that, one read after the other, while the disk
// waits. Here a few threads do it, in the order of the spans. Reads do not wait for them: a read
// that gets to a page first faults it in as usual.
class FreshPages {
 public:
  // The spans must stay writable until `stop` returns or this object is destroyed. If threads
  // cannot be started, or the kernel is too old, the reads touch the pages themselves.
  explicit FreshPages(std::vector<std::span<std::byte>> spans);
  ~FreshPages() { stop(); }
  FreshPages(const FreshPages&) = delete;
  FreshPages& operator=(const FreshPages&) = delete;

  // Returns soon. Must be called from one thread at a time.
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
