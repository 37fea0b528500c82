// Reads a whole bucket into memory, several pieces at a time.
#pragma once

#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "prepare/buckets.h"

namespace evenkeel {

// All calls come from one thread; others read. The memory is the caller's.
class BucketLoader {
 public:
  explicit BucketLoader(BucketReader& buckets);
  ~BucketLoader();  // waits for the reads under way
  BucketLoader(const BucketLoader&) = delete;
  BucketLoader& operator=(const BucketLoader&) = delete;

  // What memory for a bucket must hold: its bytes, and the rest of the last sector.
  static std::uint64_t memory(const BucketReader& buckets, std::uint64_t bucket);
  // Begins to read. The last bucket must have been read to its end, or `cancel` called.
  void start(std::uint64_t bucket, std::byte* memory) EXCLUDES(mutex_);
  // Waits until more than `have` bytes of the bucket, counted from its beginning, are in memory,
  // and returns how many are. Throws what a read threw.
  std::uint64_t wait_for_more(std::uint64_t have) EXCLUDES(mutex_);
  // Nothing more is read; waits for the reads under way.
  void cancel() noexcept EXCLUDES(mutex_);

 private:
  static constexpr std::uint64_t kPiece = 1 << 20;
  static constexpr unsigned kThreads = 4;

  void work() EXCLUDES(mutex_);
  void read_piece(std::uint64_t piece);

  BucketReader& buckets_;
  Mutex mutex_;
  CondVar work_, done_;
  // The bucket that is read: set by `start`, while no thread reads.
  std::uint64_t bucket_ = 0, bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::uint64_t next_piece_ GUARDED_BY(mutex_) = 0, pieces_ GUARDED_BY(mutex_) = 0;
  std::uint64_t reading_ GUARDED_BY(mutex_) = 0;  // pieces under way
  std::vector<bool> there_ GUARDED_BY(mutex_);    // pieces that are in memory
  bool ending_ GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace evenkeel
