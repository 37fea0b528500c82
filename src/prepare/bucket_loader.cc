#include "prepare/bucket_loader.h"

#include <algorithm>
#include <system_error>

#include "base/checked.h"
#include "base/thread.h"

namespace evenkeel {

BucketLoader::BucketLoader(BucketReader& buckets) : buckets_(buckets) {
  threads_.reserve(kThreads);  // push_back must not fail after a thread was started
  for (unsigned i = 0; i < kThreads; ++i) {
    try {
      threads_.push_back(start_thread([this] { work(); }));
    } catch (const std::system_error&) {
      break;  // fewer threads are enough; without any, the caller reads
    }
  }
}

BucketLoader::~BucketLoader() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
    next_piece_ = pieces_;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::uint64_t BucketLoader::memory(const BucketReader& buckets, std::uint64_t bucket) {
  return round_up(buckets.bytes(bucket), OutputFile::kAlignment);
}

void BucketLoader::start(std::uint64_t bucket, std::byte* memory) {
  {
    const MutexLock lock(mutex_);
    bucket_ = bucket;
    bytes_ = buckets_.bytes(bucket);
    memory_ = memory;
    next_piece_ = 0;
    pieces_ = divide_up(bytes_, kPiece);
    there_.assign(pieces_, false);
    error_ = nullptr;
  }
  work_.notify_all();
}

void BucketLoader::read_piece(std::uint64_t piece) {
  const std::uint64_t begin = piece * kPiece, length = std::min(kPiece, bytes_ - begin);
  buckets_.read(bucket_, begin, {memory_ + begin, round_up(length, OutputFile::kAlignment)});
}

void BucketLoader::work() {
  MutexLock lock(mutex_);
  for (;;) {
    while (next_piece_ == pieces_ && !ending_) work_.wait(mutex_);
    if (ending_) return;
    const std::uint64_t piece = next_piece_++;
    ++reading_;
    lock.unlock();
    std::exception_ptr error;
    try {
      read_piece(piece);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --reading_;
    if (error) {
      if (!error_) error_ = error;
      next_piece_ = pieces_;
    } else {
      there_[piece] = true;
    }
    done_.notify_all();
  }
}

std::uint64_t BucketLoader::wait_for_more(std::uint64_t have) {
  if (threads_.empty()) {
    read_piece(have / kPiece);
    return std::min(bytes_, (have / kPiece + 1) * kPiece);
  }
  const MutexLock lock(mutex_);
  const std::uint64_t first = have / kPiece;
  while (!there_[first] && !error_) done_.wait(mutex_);
  if (error_) std::rethrow_exception(error_);
  std::uint64_t piece = first;
  while (piece < pieces_ && there_[piece]) ++piece;
  return std::min(bytes_, piece * kPiece);
}

void BucketLoader::cancel() noexcept {
  const MutexLock lock(mutex_);
  next_piece_ = pieces_;
  while (reading_ > 0) done_.wait(mutex_);
}

}  // namespace evenkeel
