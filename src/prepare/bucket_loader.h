// Reads a whole bucket into memory, several parts of it at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "prepare/buckets.h"

namespace evenkeel {

// All calls must come from one thread; other threads read. The caller owns the memory.
class BucketLoader {
 public:
  explicit BucketLoader(BucketReader& buckets);
  ~BucketLoader();  // waits for reads in progress
  BucketLoader(const BucketLoader&) = delete;
  BucketLoader& operator=(const BucketLoader&) = delete;

  // The memory that a bucket needs: its bytes, rounded up to whole sectors.
  static std::uint64_t memory(const BucketReader& buckets, std::uint64_t bucket);
  // Begins to read. The last bucket must have been read to its end or cancelled.
  void start(std::uint64_t bucket, std::byte* memory) EXCLUDES(mutex_);
  // Waits until more than `have` bytes of the bucket, counted from its beginning, are in memory,
  // and returns how many are. Throws the error of a failed read.
  std::uint64_t wait_for_more(std::uint64_t have) EXCLUDES(mutex_);
  // Starts no more reads, and waits for reads in progress.
  void cancel() noexcept EXCLUDES(mutex_);

 private:
  static constexpr std::uint64_t kPiece = 1 << 20;
  static constexpr unsigned kThreads = 4;

  void work() EXCLUDES(mutex_);
  void read_piece(std::uint64_t piece);

  BucketReader& buckets_;
  Mutex mutex_;
  CondVar work_, done_;
  // The current bucket. Set by `start`, while no thread reads.
  std::uint64_t bucket_ = 0, bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::uint64_t next_piece_ GUARDED_BY(mutex_) = 0, pieces_ GUARDED_BY(mutex_) = 0;
  std::uint64_t reading_ GUARDED_BY(mutex_) = 0;  // pieces being read
  std::vector<bool> there_ GUARDED_BY(mutex_);    // pieces that are in memory
  bool ending_ GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace evenkeel
